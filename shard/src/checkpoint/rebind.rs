//! Checks files of a checkpoint that pass by in pieces, and binds them to another store: a restored collection has a uid of its own, and
//! checksums of files begin with the uid of their store.
use super::image::{self, BLOCK_HEADER_BYTES, FOOTER_BYTES, KIND_FOOTER, KIND_RECORDS};
use super::{
    CheckpointError, FILE_HEADER_BYTES, Identity, check_file_header, encode_file_header, u32_at, u64_at,
    vectors,
};
use crate::disk::BLOCK;
use std::path::{Path, PathBuf};

/// Bytes of a block header before its own checksum.
const SUMMED: usize = BLOCK_HEADER_BYTES - 4;

/// Checks an image whose bytes arrive in pieces, and binds it to another store.
pub struct ImageCheck {
    path: PathBuf,
    name: String,
    /// The uid of the store that the image belongs to, and of the store that it is to belong to.
    from: u64,
    to: u64,
    /// How many bytes have been taken.
    at: u64,
    /// The seeds of the checksums of block headers, for the old store and for the new one.
    seeds: (u32, u32),
    blocks: u64,
    body_bytes: u64,
    state: Within,
}

/// Where in the image the next byte lies.
enum Within {
    /// The next byte lies within the first [`BLOCK`] bytes.
    Head,
    /// The next byte belongs to the header of a block, of which so many bytes are there.
    BlockHeader([u8; BLOCK_HEADER_BYTES], usize),
    /// The next byte belongs to the body of a block.
    Body(Body),
    /// The next byte lies behind the footer, which says up to which change the image has everything.
    Padding(u64),
}

struct Body {
    kind: u32,
    bytes: u64,
    left: u64,
    /// The checksum of the bytes of the body that have been taken.
    crc: u32,
    expected: u32,
    /// The bytes that have been taken, if the block is the footer.
    footer: Vec<u8>,
}

impl ImageCheck {
    /// Begins to check `dir/name` of the store `from`, which is to become a file of the store `to`. If both are the same, nothing is changed.
    pub fn new(dir: &Path, name: &str, from: u64, to: u64) -> ImageCheck {
        ImageCheck {
            path: dir.join(name),
            name: name.to_owned(),
            from,
            to,
            at: 0,
            seeds: (0, 0),
            blocks: 0,
            body_bytes: 0,
            state: Within::Head,
        }
    }

    /// Takes the next bytes and makes them those of the other store. The first ones are at least [`BLOCK`].
    ///
    /// # Errors
    /// The image is damaged, newer, or of another store than it should be.
    pub fn pass(&mut self, bytes: &mut [u8]) -> Result<(), CheckpointError> {
        let mut taken = 0;
        while taken < bytes.len() {
            taken += self.step(&mut bytes[taken..])?;
        }
        Ok(())
    }

    /// Ends the check after the last bytes, and returns the number of the last change that the image has.
    ///
    /// # Errors
    /// The image is cut.
    pub fn end(&self) -> Result<u64, CheckpointError> {
        match self.state {
            Within::Padding(seq) if self.at.is_multiple_of(BLOCK as u64) => Ok(seq),
            _ => Err(self.corrupt("the file ends too early")),
        }
    }

    fn corrupt(&self, what: impl Into<String>) -> CheckpointError {
        CheckpointError::corrupt(&self.path, self.at, what)
    }

    /// Takes some of `bytes`; how many.
    fn step(&mut self, bytes: &mut [u8]) -> Result<usize, CheckpointError> {
        let taken = match &mut self.state {
            Within::Head => self.head(bytes)?,
            Within::BlockHeader(header, have) => {
                let taken = bytes.len().min(BLOCK_HEADER_BYTES - *have);
                header[*have..*have + taken].copy_from_slice(&bytes[..taken]);
                let (begin, end) = (*have, *have + taken);
                *have = end;
                let header = *header;
                // What the checksum covers came before it, perhaps with earlier bytes.
                let sum = crc32c::crc32c_append(self.seeds.1, &header[..SUMMED]).to_le_bytes();
                let from = begin.max(SUMMED);
                if from < end {
                    bytes[from - begin..taken].copy_from_slice(&sum[from - SUMMED..end - SUMMED]);
                }
                if end == BLOCK_HEADER_BYTES {
                    self.begin_body(&header)?;
                }
                taken
            }
            Within::Body(body) => {
                let taken = body.left.min(bytes.len() as u64) as usize;
                body.crc = crc32c::crc32c_append(body.crc, &bytes[..taken]);
                body.left -= taken as u64;
                if body.kind == KIND_FOOTER {
                    body.footer.extend_from_slice(&bytes[..taken]);
                }
                if body.left == 0 {
                    self.end_body()?;
                }
                taken
            }
            Within::Padding(_) => {
                let left = (self.at.next_multiple_of(BLOCK as u64) - self.at) as usize;
                if bytes.len() > left {
                    return Err(self.corrupt("something follows the footer"));
                }
                if bytes.iter().any(|byte| *byte != 0) {
                    return Err(self.corrupt("padding is not zero"));
                }
                bytes.len()
            }
        };
        self.at += taken as u64;
        Ok(taken)
    }

    fn head(&mut self, bytes: &mut [u8]) -> Result<usize, CheckpointError> {
        if self.at != 0 || bytes.len() < BLOCK {
            return Err(self.corrupt("the file ends within its header"));
        }
        self.seeds = rebind_head(&self.path, bytes, &image::KIND_OF_FILE, (self.from, self.to), &self.name)?;
        if bytes[FILE_HEADER_BYTES..BLOCK].iter().any(|byte| *byte != 0) {
            return Err(self.corrupt("padding is not zero"));
        }
        self.state = Within::BlockHeader([0; BLOCK_HEADER_BYTES], 0);
        Ok(BLOCK)
    }

    fn begin_body(&mut self, header: &[u8; BLOCK_HEADER_BYTES]) -> Result<(), CheckpointError> {
        if !image::is_block_header(header, self.seeds.0) {
            return Err(self.corrupt("the header of a block is damaged"));
        }
        if u64_at(header, 16) != self.blocks {
            return Err(self.corrupt(format!(
                "block {} stands where {} belongs",
                u64_at(header, 16),
                self.blocks
            )));
        }
        let (kind, left) = (u32_at(header, 4), u64_at(header, 8));
        if !(kind == KIND_RECORDS && left > 0 || kind == KIND_FOOTER && left == FOOTER_BYTES as u64) {
            return Err(self.corrupt(format!("a block of unknown kind {kind}")));
        }
        let expected = u32_at(header, 24);
        self.state = Within::Body(Body { kind, bytes: left, left, crc: 0, expected, footer: Vec::new() });
        Ok(())
    }

    fn end_body(&mut self) -> Result<(), CheckpointError> {
        let Within::Body(body) = &self.state else { return Ok(()) };
        if body.crc != body.expected {
            return Err(self.corrupt(format!("the checksum of block {} is wrong", self.blocks)));
        }
        self.state = match body.kind {
            KIND_FOOTER => {
                let counted = (u64_at(&body.footer, 8), u64_at(&body.footer, 16));
                if counted != (self.blocks, self.body_bytes) {
                    let found = (self.blocks, self.body_bytes);
                    return Err(self
                        .corrupt(format!("the footer counts {counted:?} blocks and bytes, not {found:?}")));
                }
                Within::Padding(u64_at(&body.footer, 0))
            }
            _ => {
                self.blocks += 1;
                self.body_bytes += body.bytes;
                Within::BlockHeader([0; BLOCK_HEADER_BYTES], 0)
            }
        };
        Ok(())
    }
}

/// Checks the beginning of a file of vectors of the store `from`, and makes it that of the store `to`. `bytes` are at least the first [`BLOCK`].
///
/// # Errors
/// It is damaged, newer, or of another store.
pub fn rebind_vectors(
    dir: &Path,
    name: &str,
    from: u64,
    to: u64,
    bytes: &mut [u8],
) -> Result<(), CheckpointError> {
    let path = dir.join(name);
    if bytes.len() < BLOCK {
        return Err(CheckpointError::corrupt(&path, bytes.len() as u64, "the file ends too early"));
    }
    rebind_head(&path, bytes, &vectors::KIND_OF_FILE, (from, to), name)?;
    Ok(())
}

/// Checks and replaces the header at the beginning of `bytes`. What checksums behind it begin with, and are to begin with: 0 in files of versions
/// that are not bound to a store, which stay as they are.
fn rebind_head(
    path: &Path,
    bytes: &mut [u8],
    kind: &super::KindOfFile,
    (from, to): (u64, u64),
    name: &str,
) -> Result<(u32, u32), CheckpointError> {
    let header: [u8; FILE_HEADER_BYTES] = *bytes.first_chunk().expect("a block at least");
    let identity = Identity { store: from, name };
    let seed = check_file_header(path, &header, kind.magic, kind.versions, identity)?;
    let version = u32_at(&header, 8);
    if version < kind.versions.bound {
        return Ok((0, 0));
    }
    let identity = Identity { store: to, name };
    bytes[..FILE_HEADER_BYTES].copy_from_slice(&encode_file_header(kind.magic, version, identity));
    Ok((seed, identity.seed()))
}

#[cfg(test)]
mod tests {
    use super::super::{ImageWriter, read_image};
    use super::*;
    use crate::disk::{Disk, SimDisk};
    use futures_lite::future::block_on;
    use std::rc::Rc;

    const NAME: &str = "00000007.img";

    /// An image of the store 5 with blocks of many lengths, and the bodies of its blocks.
    async fn image(disk: &SimDisk) -> (Vec<u8>, Vec<Vec<u8>>) {
        let dir = Path::new("d");
        disk.create_dir(dir).await.unwrap();
        let mut writer = ImageWriter::create(Rc::new(disk.clone()), dir, NAME, 5).await.unwrap();
        let bodies: Vec<Vec<u8>> = (1..40u8).map(|n| vec![n; 13 * usize::from(n) + 1]).collect();
        for body in &bodies {
            writer.block(body).await.unwrap();
        }
        writer.finish(99).await.unwrap();
        (disk.read(&dir.join(NAME)).await.unwrap(), bodies)
    }

    fn checked(bytes: &mut [u8], from: u64, to: u64, step: usize) -> Result<u64, CheckpointError> {
        let mut check = ImageCheck::new(Path::new("d"), NAME, from, to);
        let (first, rest) = bytes.split_at_mut(BLOCK.min(bytes.len()));
        check.pass(first)?;
        rest.chunks_mut(step).try_for_each(|piece| check.pass(piece))?;
        check.end()
    }

    #[test]
    fn an_image_is_bound_to_another_store_in_pieces_of_any_length() {
        block_on(async {
            let disk = SimDisk::new(1);
            let (bytes, bodies) = image(&disk).await;
            for step in [1, 3, 7, 31, 32, 33, 1000, 4096, 1 << 20] {
                let mut same = bytes.clone();
                assert_eq!(checked(&mut same, 5, 5, step).unwrap(), 99);
                assert_eq!(same, bytes, "a check alone changes nothing");
                let mut other = bytes.clone();
                assert_eq!(checked(&mut other, 5, 6, step).unwrap(), 99);
                disk.create_dir(Path::new("e")).await.unwrap();
                let file = disk.create(&Path::new("e").join(NAME)).await.unwrap();
                file.write_at(0, &other).await.unwrap();
                file.close().await.unwrap();
                let mut found = Vec::new();
                let mut take = |block: &[u8]| {
                    found.push(block.to_vec());
                    Ok(())
                };
                let seq = read_image(&disk, Path::new("e"), NAME, 6, &mut take).await.unwrap();
                assert_eq!((seq, &found), (99, &bodies));
                assert!(read_image(&disk, Path::new("e"), NAME, 5, &mut |_| Ok(())).await.is_err());
            }
            assert!(checked(&mut bytes.clone(), 4, 5, 100).is_err(), "it is of another store");
        });
    }

    #[test]
    fn a_cut_or_a_flipped_bit_anywhere_is_noticed() {
        block_on(async {
            let disk = SimDisk::new(1);
            let (bytes, _) = image(&disk).await;
            for cut in (0..bytes.len()).step_by(7) {
                assert!(checked(&mut bytes[..cut].to_vec(), 5, 6, 500).is_err(), "cut at {cut}");
            }
            for at in 0..bytes.len() {
                let mut other = bytes.clone();
                other[at] ^= 1 << (at % 8);
                assert!(checked(&mut other, 5, 6, 500).is_err(), "byte {at}");
            }
            let mut longer = bytes.clone();
            longer.resize(bytes.len() + BLOCK, 0);
            assert!(checked(&mut longer, 5, 6, 500).is_err());
        });
    }
}
