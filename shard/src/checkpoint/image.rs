//! Image files, format version 3. All integers are little-endian.
//!
//! ```text
//! image  = header (64 bytes, see the module above), zeros to 4096, block*, footer, zeros to a multiple of 4096
//! block  = magic "NBLK", kind u32 = 1, bytes u64, ordinal u64, body crc u32, crc u32, body
//! footer = a block of kind 2 whose body is seq u64, blocks u64, bytes of all bodies u64
//! ```
//!
//! Checksums are CRC32C; that of a block header covers the 28 bytes before it, and begins with the image's store and name: a block of
//! another image, or of another collection, never passes for one of this. Every byte of the file is either under a checksum or checked to
//! be zero, so that a flipped bit anywhere is noticed.
//!
//! Version 1 knew no records in payloads. Versions 1 and 2 were not bound to a store and a name.
use super::{
    CheckpointError, FILE_HEADER_BYTES, Identity, KindOfFile, Versions, check_file_header,
    encode_file_header, u32_at, u64_at,
};
use crate::disk::{BLOCK, Disk, DiskFile, ReadThrough};
use std::path::{Path, PathBuf};
use std::rc::Rc;

const MAGIC: &[u8; 8] = b"NIGHIMG\0";
pub(super) const VERSIONS: Versions = Versions { newest: 3, bound: 3 };
pub(super) const KIND_OF_FILE: KindOfFile = KindOfFile { magic: MAGIC, versions: VERSIONS };
const BLOCK_MAGIC: &[u8; 4] = b"NBLK";
pub(super) const BLOCK_HEADER_BYTES: usize = 32;
pub(super) const FOOTER_BYTES: usize = 24;
/// What is collected before it is written.
const BUFFER_BYTES: usize = 1 << 20;

pub(super) const KIND_RECORDS: u32 = 1;
pub(super) const KIND_FOOTER: u32 = 2;

fn encode_block_header(seed: u32, kind: u32, ordinal: u64, body: &[u8]) -> [u8; BLOCK_HEADER_BYTES] {
    let mut header = [0; BLOCK_HEADER_BYTES];
    header[..4].copy_from_slice(BLOCK_MAGIC);
    header[4..8].copy_from_slice(&kind.to_le_bytes());
    header[8..16].copy_from_slice(&(body.len() as u64).to_le_bytes());
    header[16..24].copy_from_slice(&ordinal.to_le_bytes());
    header[24..28].copy_from_slice(&crc32c::crc32c(body).to_le_bytes());
    let crc = crc32c::crc32c_append(seed, &header[..28]);
    header[28..].copy_from_slice(&crc.to_le_bytes());
    header
}

/// Whether a block of this image may begin with `header`.
pub(super) fn is_block_header(header: &[u8; BLOCK_HEADER_BYTES], seed: u32) -> bool {
    header.starts_with(BLOCK_MAGIC) && u32_at(header, 28) == crc32c::crc32c_append(seed, &header[..28])
}

/// Writes one image file block by block. Dropped before [`ImageWriter::finish`], it leaves a file that no manifest names;
/// remove it.
pub struct ImageWriter {
    disk: Rc<dyn Disk>,
    dir: PathBuf,
    path: PathBuf,
    file: Rc<dyn DiskFile>,
    /// What checksums of block headers begin with.
    seed: u32,
    /// Bytes not yet written.
    buffer: Vec<u8>,
    /// Bytes written, a multiple of [`BLOCK`].
    written: u64,
    blocks: u64,
    body_bytes: u64,
}

impl ImageWriter {
    /// Creates `dir/name`, an image of the store with the uid `store`; `dir` exists. A file of that name is replaced.
    ///
    /// # Errors
    /// The disk refused.
    pub async fn create(
        disk: Rc<dyn Disk>,
        dir: &Path,
        name: &str,
        store: u64,
    ) -> Result<ImageWriter, CheckpointError> {
        let identity = Identity { store, name };
        let path = dir.join(name);
        let file = disk.create(&path).await.map_err(CheckpointError::io(&path))?;
        let mut buffer = Vec::with_capacity(BUFFER_BYTES + BLOCK);
        buffer.extend_from_slice(&encode_file_header(MAGIC, VERSIONS.newest, identity));
        buffer.resize(BLOCK, 0);
        Ok(ImageWriter {
            disk,
            dir: dir.to_owned(),
            path,
            file,
            seed: identity.seed(),
            buffer,
            written: 0,
            blocks: 0,
            body_bytes: 0,
        })
    }

    /// Appends one block of whole records (any length; nothing for an empty one). Writes when about 1 MiB is collected.
    ///
    /// # Errors
    /// The disk refused; the image is then good for nothing.
    pub async fn block(&mut self, records: &[u8]) -> Result<(), CheckpointError> {
        if records.is_empty() {
            return Ok(());
        }
        self.buffer.extend_from_slice(&encode_block_header(self.seed, KIND_RECORDS, self.blocks, records));
        self.buffer.extend_from_slice(records);
        self.blocks += 1;
        self.body_bytes += records.len() as u64;
        if self.buffer.len() >= BUFFER_BYTES { self.write().await } else { Ok(()) }
    }

    /// Writes the whole blocks of the buffer.
    async fn write(&mut self) -> Result<(), CheckpointError> {
        let whole = self.buffer.len() / BLOCK * BLOCK;
        let written = self.file.write_at(self.written, &self.buffer[..whole]).await;
        written.map_err(CheckpointError::io(&self.path))?;
        self.written += whole as u64;
        self.buffer.drain(..whole);
        Ok(())
    }

    /// Footer with `seq` and block count, sync, sync of the directory; returns bytes written.
    ///
    /// # Errors
    /// The disk refused; the image is then good for nothing.
    pub async fn finish(mut self, seq: u64) -> Result<u64, CheckpointError> {
        let mut footer = [0; FOOTER_BYTES];
        footer[..8].copy_from_slice(&seq.to_le_bytes());
        footer[8..16].copy_from_slice(&self.blocks.to_le_bytes());
        footer[16..].copy_from_slice(&self.body_bytes.to_le_bytes());
        self.buffer.extend_from_slice(&encode_block_header(self.seed, KIND_FOOTER, self.blocks, &footer));
        self.buffer.extend_from_slice(&footer);
        self.buffer.resize(self.buffer.len().next_multiple_of(BLOCK), 0);
        self.write().await?;
        let finished = async {
            self.file.sync().await?;
            self.file.close().await?;
            self.disk.sync_dir(&self.dir).await
        };
        finished.await.map_err(CheckpointError::io(&self.path))?;
        Ok(self.written)
    }
}

/// Reads one image of the store with the uid `store`, calling `block` with each block's bytes; checks every checksum and the footer; returns the footer's seq.
///
/// Blocks are handed out as they are read, so a file that is damaged further on has delivered its beginning: on an error
/// throw away what was made of it. Holds one block and some MiB that are read ahead in memory.
///
/// # Errors
/// The file cannot be read, is newer, is damaged, or is another image; `block` failed (its text becomes that of `Corrupt`).
pub async fn read_image(
    disk: &dyn Disk,
    dir: &Path,
    name: &str,
    store: u64,
    block: &mut dyn FnMut(&[u8]) -> Result<(), String>,
) -> Result<u64, CheckpointError> {
    let mut reader = ImageReader::open(disk, dir, name, store).await?;
    while let Some(body) = reader.next().await? {
        if let Err(what) = block(body) {
            return Err(reader.corrupt(what));
        }
    }
    Ok(reader.seq())
}

/// Hands `block` the last block of records of an image, which holds its end. Unlike [`read_image`] it reads headers alone of what
/// comes before, and checks that block only.
///
/// # Errors
/// As [`read_image`], as far as it looks.
pub async fn read_last_block(
    disk: &dyn Disk,
    dir: &Path,
    name: &str,
    store: u64,
    block: &mut dyn FnMut(&[u8]) -> Result<(), String>,
) -> Result<(), CheckpointError> {
    let path = dir.join(name);
    let file = disk.open(&path).await.map_err(CheckpointError::io(&path))?;
    let file_bytes = file.len().await.map_err(CheckpointError::io(&path))?;
    let first = file.read_at(0, FILE_HEADER_BYTES).await.map_err(CheckpointError::io(&path))?;
    let ends = || CheckpointError::corrupt(&path, 0, "the file ends within its header");
    let seed = check_file_header(
        &path,
        first.first_chunk().ok_or_else(ends)?,
        MAGIC,
        VERSIONS,
        Identity { store, name },
    )?;
    let (mut at, mut last) = (BLOCK as u64, None);
    loop {
        let corrupt = |what: &str| CheckpointError::corrupt(&path, at, what);
        let header = file.read_at(at, BLOCK_HEADER_BYTES).await.map_err(CheckpointError::io(&path))?;
        let header: [u8; BLOCK_HEADER_BYTES] =
            *header.first_chunk().ok_or_else(|| corrupt("the file ends within the header of a block"))?;
        if !is_block_header(&header, seed) {
            return Err(corrupt("the header of a block is damaged"));
        }
        let (body_at, body_bytes) = (at + BLOCK_HEADER_BYTES as u64, u64_at(&header, 8));
        if body_bytes > file_bytes.saturating_sub(body_at) {
            return Err(corrupt("the file ends within a block"));
        }
        if u32_at(&header, 4) == KIND_FOOTER {
            break;
        }
        last = Some((body_at, body_bytes, u32_at(&header, 24)));
        at = body_at + body_bytes;
    }
    if let Some((at, bytes, crc)) = last {
        let body = file.read_at(at, bytes as usize).await.map_err(CheckpointError::io(&path))?;
        if body.len() as u64 != bytes || crc32c::crc32c(&body) != crc {
            return Err(CheckpointError::corrupt(&path, at, "the checksum of the last block is wrong"));
        }
        block(&body).map_err(|what| CheckpointError::corrupt(&path, at, what))?;
    }
    file.close().await.map_err(CheckpointError::io(&path))
}

/// Reads one image block by block, as [`read_image`] does, for callers that let others run between two blocks.
pub struct ImageReader {
    reader: Reader,
    /// What checksums of block headers begin with.
    seed: u32,
    /// Where the block that was handed out last begins.
    at: u64,
    blocks: u64,
    body_bytes: u64,
    /// Of the footer, once it has been read.
    seq: Option<u64>,
}

impl ImageReader {
    /// Opens `dir/name`, an image of the store with the uid `store`.
    ///
    /// # Errors
    /// As [`read_image`].
    pub async fn open(
        disk: &dyn Disk,
        dir: &Path,
        name: &str,
        store: u64,
    ) -> Result<ImageReader, CheckpointError> {
        let path = dir.join(name);
        let file = disk.read_through(&path).await.map_err(CheckpointError::io(&path))?;
        let file_bytes = file.len();
        let mut reader = Reader { path, file, file_bytes, offset: 0, buffer: Vec::new(), taken: 0 };
        let path = reader.path.clone();
        let first = reader.take(BLOCK as u64).await?;
        let header = first.first_chunk().expect("a whole block");
        let seed = check_file_header(&path, header, MAGIC, VERSIONS, Identity { store, name })?;
        check_zeros(&path, FILE_HEADER_BYTES as u64, &first[FILE_HEADER_BYTES..])?;
        Ok(ImageReader { reader, seed, at: BLOCK as u64, blocks: 0, body_bytes: 0, seq: None })
    }

    /// The next block; `None` at the end of the image, the footer of which has been checked then.
    ///
    /// # Errors
    /// As [`read_image`].
    pub async fn next(&mut self) -> Result<Option<&[u8]>, CheckpointError> {
        if self.seq.is_some() {
            return Ok(None);
        }
        self.at = self.reader.position();
        let header: [u8; BLOCK_HEADER_BYTES] =
            *self.reader.take(BLOCK_HEADER_BYTES as u64).await?.first_chunk().expect("as many as asked for");
        if !is_block_header(&header, self.seed) {
            return Err(self.corrupt("the header of a block is damaged"));
        }
        if u64_at(&header, 16) != self.blocks {
            return Err(self.corrupt(format!(
                "block {} stands where {} belongs",
                u64_at(&header, 16),
                self.blocks
            )));
        }
        let bytes = u64_at(&header, 8);
        let crc = crc32c::crc32c(self.reader.take(bytes).await?);
        if u32_at(&header, 24) != crc {
            return Err(self.corrupt(format!("the checksum of block {} is wrong", self.blocks)));
        }
        match u32_at(&header, 4) {
            KIND_RECORDS => {
                self.blocks += 1;
                self.body_bytes += bytes;
                Ok(Some(self.reader.last(bytes as usize)))
            }
            KIND_FOOTER if bytes == FOOTER_BYTES as u64 => {
                self.end().await?;
                Ok(None)
            }
            kind => Err(self.corrupt(format!("a block of unknown kind {kind}"))),
        }
    }

    /// Checks the footer, which has just been taken, and that nothing but padding follows it.
    async fn end(&mut self) -> Result<(), CheckpointError> {
        let body = self.reader.last(FOOTER_BYTES);
        let (seq, counted) = (u64_at(body, 0), (u64_at(body, 8), u64_at(body, 16)));
        let found = (self.blocks, self.body_bytes);
        if counted != found {
            return Err(
                self.corrupt(format!("the footer counts {counted:?} blocks and bytes, not {found:?}"))
            );
        }
        let (end, path) = (self.reader.position(), self.reader.path.clone());
        let padding = self.reader.take(end.next_multiple_of(BLOCK as u64) - end).await?;
        check_zeros(&path, end, padding)?;
        if self.reader.position() != self.reader.file_bytes {
            return Err(self.corrupt("something follows the footer"));
        }
        self.seq = Some(seq);
        Ok(())
    }

    /// The error for a block whose contents are of no use: the one that was handed out last.
    pub fn corrupt(&self, what: impl Into<String>) -> CheckpointError {
        CheckpointError::corrupt(&self.reader.path, self.at, what)
    }

    /// The number that the footer has; 0 before it has been read.
    pub fn seq(&self) -> u64 {
        self.seq.unwrap_or_default()
    }
}

fn check_zeros(path: &Path, offset: u64, bytes: &[u8]) -> Result<(), CheckpointError> {
    match bytes.iter().position(|&byte| byte != 0) {
        Some(at) => Err(CheckpointError::corrupt(path, offset + at as u64, "padding is not zero")),
        None => Ok(()),
    }
}

/// Takes a file apart from front to back.
struct Reader {
    path: PathBuf,
    file: Box<dyn ReadThrough>,
    file_bytes: u64,
    /// Bytes of the file read so far: where the buffer ends.
    offset: u64,
    buffer: Vec<u8>,
    /// Bytes of the buffer handed out.
    taken: usize,
}

impl Reader {
    /// Where the next byte comes from.
    fn position(&self) -> u64 {
        self.offset - (self.buffer.len() - self.taken) as u64
    }

    /// The next `len` bytes.
    async fn take(&mut self, len: u64) -> Result<&[u8], CheckpointError> {
        let at = self.position();
        let ends_early = |end: u64| {
            let what = format!("{len} bytes belong here, the file ends at {end}");
            CheckpointError::corrupt(&self.path, at, what)
        };
        // Before anything is allocated for it: the length comes from the file.
        if len > self.file_bytes.saturating_sub(at) {
            return Err(ends_early(self.file_bytes));
        }
        let len = len as usize;
        if self.buffer.len() - self.taken < len {
            self.buffer.drain(..self.taken);
            self.taken = 0;
            while self.buffer.len() < len {
                let read = self.file.next().await.map_err(CheckpointError::io(&self.path))?;
                if read.is_empty() {
                    return Err(ends_early(self.offset));
                }
                self.offset += read.len() as u64;
                match self.buffer.is_empty() {
                    true => self.buffer = read,
                    false => self.buffer.extend_from_slice(&read),
                }
            }
        }
        self.taken += len;
        Ok(self.last(len))
    }

    /// The `len` bytes that were taken last, together.
    fn last(&self, len: usize) -> &[u8] {
        &self.buffer[self.taken - len..self.taken]
    }
}
