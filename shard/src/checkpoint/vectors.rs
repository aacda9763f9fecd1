//! The file of vectors of a persistent collection: mapped into memory, and the place where its vectors are stored.
//!
//! ```text
//! file = header (64 bytes, see the module above), row bytes u32, crc u32 (of these four), zeros to 65,536, row*
//! ```
//!
//! Version 2; in version 1 the header did not say where the file belongs.
//!
//! Row `n` is the padded vector of slot `n`, floats of the machine. What rows hold is said by images alone, with a checksum of each: a
//! row that the newest manifest's images name is not written to, so that a crash at any moment, also one that keeps some pages
//! and loses others, leaves what the manifest needs. Everything else comes from the log.
use super::{
    CheckpointError, FILE_HEADER_BYTES, Identity, KindOfFile, Versions, check_file_header,
    encode_file_header, u32_at,
};
use crate::disk::{BLOCK, Disk, DiskFile, PageFile};
use nigh_engine::collection::DenseConfig;
use nigh_engine::distance::padded;
use nigh_engine::memory::{FilePages, Storage};
use std::cell::Cell;
use std::io;
use std::path::Path;
use std::rc::Rc;

const MAGIC: &[u8; 8] = b"NIGHVEC\0";
pub(super) const VERSIONS: Versions = Versions { newest: 2, bound: 2 };
pub(super) const KIND_OF_FILE: KindOfFile = KindOfFile { magic: MAGIC, versions: VERSIONS };
/// Where rows start: on a page, whatever its size.
const ROWS_START: u64 = 65_536;

/// Bytes of a row under a configuration.
fn row_bytes(config: &DenseConfig) -> u32 {
    (padded(config.dim) * size_of::<f32>()) as u32
}

/// One open file.
pub struct VectorsFile {
    name: String,
    file: Rc<dyn DiskFile>,
    row_bytes: usize,
    /// A sync has failed: nobody knows what reached the device, and another that succeeds says nothing about it.
    failed: Cell<bool>,
}

impl VectorsFile {
    /// Name of the file with that number.
    pub fn name_of(number: u64) -> String {
        format!("{number:08x}.vec")
    }

    /// Whether a file of that name is one of these.
    pub fn is_name(name: &str) -> bool {
        name.ends_with(".vec")
    }

    /// Creates an empty file of the collection `store` in `dir`, durably; a manifest may name it then.
    ///
    /// # Errors
    /// The disk refused.
    pub async fn create(
        disk: &dyn Disk,
        dir: &Path,
        number: u64,
        store: u64,
        config: &DenseConfig,
    ) -> Result<VectorsFile, CheckpointError> {
        let name = VectorsFile::name_of(number);
        let path = dir.join(&name);
        let io = CheckpointError::io(&path);
        let file = disk.create(&path).await.map_err(&io)?;
        let identity = Identity { store, name: &name };
        let mut header = encode_file_header(MAGIC, VERSIONS.newest, identity).to_vec();
        let row = row_bytes(config).to_le_bytes();
        header.extend_from_slice(&row);
        header.extend_from_slice(&crc32c::crc32c(&row).to_le_bytes());
        header.resize(ROWS_START as usize, 0);
        file.write_at(0, &header).await.map_err(&io)?;
        file.sync().await.map_err(&io)?;
        disk.sync_dir(dir).await.map_err(&io)?;
        Ok(VectorsFile { name, file, row_bytes: row_bytes(config) as usize, failed: Cell::new(false) })
    }

    /// Opens a file that a manifest names.
    ///
    /// # Errors
    /// It is missing, newer, damaged in its header, another collection's, or of vectors of another length.
    pub async fn open(
        disk: &dyn Disk,
        dir: &Path,
        name: &str,
        store: u64,
        config: &DenseConfig,
    ) -> Result<VectorsFile, CheckpointError> {
        let path = dir.join(name);
        let io = CheckpointError::io(&path);
        let file = disk.open(&path).await.map_err(&io)?;
        let head = file.read_at(0, BLOCK).await.map_err(&io)?;
        if head.len() < BLOCK {
            return Err(CheckpointError::corrupt(&path, head.len() as u64, "the file ends too early"));
        }
        let header = head.first_chunk().expect("a block of it");
        check_file_header(&path, header, MAGIC, VERSIONS, Identity { store, name })?;
        let (found, wanted) = (u32_at(&head, FILE_HEADER_BYTES), row_bytes(config));
        let sum = crc32c::crc32c(&head[FILE_HEADER_BYTES..FILE_HEADER_BYTES + 4]);
        if sum != u32_at(&head, FILE_HEADER_BYTES + 4) || found != wanted {
            let what = format!("its rows are of {found} bytes, those of the collection of {wanted}");
            return Err(CheckpointError::corrupt(&path, FILE_HEADER_BYTES as u64, what));
        }
        let row_bytes = wanted as usize;
        Ok(VectorsFile { name: name.to_owned(), file, row_bytes, failed: Cell::new(false) })
    }

    /// Its name, as manifests have it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Memory of it for a collection, with files without a name for the rest.
    ///
    /// # Errors
    /// The system's.
    pub fn storage(&self, disk: &dyn Disk) -> io::Result<Storage> {
        let vectors = FilePages::new(Box::new(PageFile(self.file.pages()?)), ROWS_START)?.scattered();
        Ok(Storage { vectors, scratch: disk.scratch() })
    }

    /// Bytes of a row.
    pub fn row_bytes(&self) -> usize {
        self.row_bytes
    }

    /// Rows that the file has room for.
    ///
    /// # Errors
    /// The disk refused.
    pub async fn rows(&self) -> io::Result<usize> {
        let bytes = self.file.len().await?.saturating_sub(ROWS_START);
        Ok(bytes as usize / self.row_bytes)
    }

    /// Rows from `first` on, as the file has them; fewer at its end.
    ///
    /// # Errors
    /// The disk refused.
    pub async fn read(&self, first: usize, rows: usize) -> io::Result<Vec<u8>> {
        self.file.read_at(ROWS_START + (first * self.row_bytes) as u64, rows * self.row_bytes).await
    }

    /// Makes durable what was written up to now. After one failure it never succeeds again.
    ///
    /// # Errors
    /// The disk refused.
    pub async fn sync(&self) -> io::Result<()> {
        if self.failed.get() {
            return Err(io::Error::other("an earlier sync of this file failed; a restart is needed"));
        }
        let result = self.file.sync().await;
        self.failed.set(self.failed.get() || result.is_err());
        result
    }
}
