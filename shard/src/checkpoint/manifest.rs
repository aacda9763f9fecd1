//! The manifest: which images make up a collection.
//!
//! File, format version 2 = header of 64 bytes (see the module above), `bytes u32, crc32c u32` of the body, body. The checksum begins with
//! the uid of the collection; in version 1 neither it nor the header did. The body is a flatbuffer
//! `Manifest { seq: u64; images: [Image] (required); vectors: string; }`, `Image { name: string (required); bytes: u64; }`:
//! tables, so that later versions may add fields without a new format.
use super::{
    CheckpointError, FILE_HEADER_BYTES, Identity, Versions, check_file_header, encode_file_header, u32_at,
};
use crate::disk::Disk;
use crate::twin::{self, TwinError};
use flatbuffers::{
    FlatBufferBuilder, Follow, ForwardsUOffset, InvalidFlatbuffer, Table, VOffsetT, Vector, Verifiable,
    Verifier, VerifierOptions,
};
use std::io;
use std::path::Path;

const FILE: &str = "manifest";
const MAGIC: &[u8; 8] = b"NIGHMAN\0";
pub(super) const VERSIONS: Versions = Versions { newest: 2, bound: 2 };
const BODY_START: usize = FILE_HEADER_BYTES + 8;

/// The files that make up the newest durable state of one collection, oldest first (flatbuffers on disk, replaced atomically).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    /// Sequence number the images are consistent with.
    pub seq: u64,
    /// Base image, then deltas: (file name, bytes).
    pub images: Vec<(String, u64)>,
    /// Of a persistent collection, the file of its vectors.
    pub vectors: Option<String>,
}

impl Manifest {
    /// Reads `dir/manifest` of the collection `store`; a missing one is the default (no images).
    ///
    /// # Errors
    /// The file cannot be read, is newer, is damaged in any bit, or is that of another collection.
    pub async fn load(disk: &dyn Disk, dir: &Path, store: u64) -> Result<Manifest, CheckpointError> {
        let path = dir.join(FILE);
        match disk.read(&path).await {
            Ok(bytes) => {
                // A process killed while it replaced the manifest may have left the new name in a cache only. What is
                // read here is acted upon (images it does not name are removed), so it must not change any more.
                disk.sync_dir(dir).await.map_err(CheckpointError::io(dir))?;
                Manifest::decode(&path, &bytes, store)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Manifest::default()),
            Err(error) => Err(CheckpointError::io(&path)(error)),
        }
    }

    /// Replaces it durably, as that of the collection `store`; `dir` exists.
    ///
    /// # Errors
    /// The disk refused; the old manifest is then still there, or the new one already.
    pub async fn store(&self, disk: &dyn Disk, dir: &Path, store: u64) -> Result<(), CheckpointError> {
        let path = dir.join(FILE);
        disk.replace(&path, &self.encode(store)).await.map_err(CheckpointError::io(&path))
    }

    /// As [`Manifest::load`], or from its copy ([`crate::twin`]).
    ///
    /// # Errors
    /// As [`Manifest::load`], when the copy does not help.
    pub async fn load_twin(disk: &dyn Disk, dir: &Path, store: u64) -> Result<Manifest, CheckpointError> {
        let path = dir.join(FILE);
        let decode = |bytes: &[u8]| Manifest::decode(&path, bytes, store);
        let is_newer = |error: &CheckpointError| matches!(error, CheckpointError::Newer { .. });
        match twin::read(disk, &path, decode, is_newer).await {
            Ok(manifest) => Ok(manifest.unwrap_or_default()),
            Err(TwinError::Bad(error)) => Err(error),
            Err(TwinError::Io(error)) => Err(CheckpointError::io(&path)(error)),
        }
    }

    /// As [`Manifest::store`], with its copy.
    ///
    /// # Errors
    /// As [`Manifest::store`].
    pub async fn store_twin(&self, disk: &dyn Disk, dir: &Path, store: u64) -> Result<(), CheckpointError> {
        let path = dir.join(FILE);
        twin::replace(disk, &path, &self.encode(store)).await.map_err(CheckpointError::io(&path))
    }

    fn encode(&self, store: u64) -> Vec<u8> {
        let mut builder = FlatBufferBuilder::new();
        let mut images = Vec::with_capacity(self.images.len());
        for (name, bytes) in &self.images {
            let name = builder.create_string(name);
            let table = builder.start_table();
            builder.push_slot_always(layout::IMAGE_NAME, name);
            builder.push_slot_always(layout::IMAGE_BYTES, *bytes);
            images.push(builder.end_table(table));
        }
        let images = builder.create_vector(&images);
        let vectors = self.vectors.as_ref().map(|name| builder.create_string(name));
        let table = builder.start_table();
        builder.push_slot_always(layout::SEQ, self.seq);
        builder.push_slot_always(layout::IMAGES, images);
        if let Some(vectors) = vectors {
            builder.push_slot_always(layout::VECTORS, vectors);
        }
        let root = builder.end_table(table);
        builder.finish_minimal(root);
        let body = builder.finished_data();
        let identity = Identity { store, name: FILE };
        let mut file = encode_file_header(MAGIC, VERSIONS.newest, identity).to_vec();
        file.extend_from_slice(&(body.len() as u32).to_le_bytes());
        file.extend_from_slice(&crc32c::crc32c_append(identity.seed(), body).to_le_bytes());
        file.extend_from_slice(body);
        file
    }

    fn decode(path: &Path, file: &[u8], store: u64) -> Result<Manifest, CheckpointError> {
        let corrupt = |offset: usize, what: String| CheckpointError::corrupt(path, offset as u64, what);
        let short = || corrupt(file.len(), "the file ends too early".into());
        let (header, identity) = (file.first_chunk().ok_or_else(short)?, Identity { store, name: FILE });
        let seed = check_file_header(path, header, MAGIC, VERSIONS, identity)?;
        let (sums, body) = file[FILE_HEADER_BYTES..].split_at_checked(8).ok_or_else(short)?;
        if u32_at(sums, 0) as usize != body.len() {
            let what = format!("{} bytes follow, {} were written", body.len(), u32_at(sums, 0));
            return Err(corrupt(FILE_HEADER_BYTES, what));
        }
        if crc32c::crc32c_append(seed, body) != u32_at(sums, 4) {
            return Err(corrupt(FILE_HEADER_BYTES, "the checksum of the body is wrong".into()));
        }
        let manifest = layout::read(body).map_err(|error| corrupt(BODY_START, error.to_string()))?;
        for name in manifest.images.iter().map(|(name, _)| name).chain(&manifest.vectors) {
            // Compared as text: components would forgive a slash at the end.
            if Path::new(name).file_name().is_none_or(|file| file != name.as_str()) {
                return Err(corrupt(BODY_START, format!("file name {name:?} leaves the directory")));
            }
        }
        Ok(manifest)
    }
}

/// Field slots and checked reading of the body.
mod layout {
    use super::*;

    const fn slot(id: VOffsetT) -> VOffsetT {
        4 + 2 * id
    }

    pub(super) const SEQ: VOffsetT = slot(0);
    pub(super) const IMAGES: VOffsetT = slot(1);
    pub(super) const VECTORS: VOffsetT = slot(2);
    pub(super) const IMAGE_NAME: VOffsetT = slot(0);
    pub(super) const IMAGE_BYTES: VOffsetT = slot(1);

    type Images<'a> = ForwardsUOffset<Vector<'a, ForwardsUOffset<Image<'a>>>>;

    struct Root<'a>(Table<'a>);

    struct Image<'a>(Table<'a>);

    /// Checks every offset of `body`, then reads it.
    pub(super) fn read(body: &[u8]) -> Result<Manifest, InvalidFlatbuffer> {
        // Room for every image a body of this length can hold; each is a table of at least 4 bytes.
        let options = VerifierOptions { max_tables: body.len() / 4 + 1, ..VerifierOptions::default() };
        let root = flatbuffers::root_with_opts::<Root<'_>>(&options, body)?;
        Ok(Manifest {
            seq: root.seq(),
            images: root.images().iter().map(|i| (i.name(), i.bytes())).collect(),
            vectors: root.vectors(),
        })
    }

    impl<'a> Root<'a> {
        fn seq(&self) -> u64 {
            // SAFETY: `read` obtains a `Root` only from the verifier, which checked this slot as a u64.
            unsafe { self.0.get::<u64>(SEQ, Some(0)) }.unwrap_or(0)
        }

        fn images(&self) -> Vector<'a, ForwardsUOffset<Image<'a>>> {
            // SAFETY: as in `seq`; the verifier checked this slot as a vector of image tables, present and in bounds.
            unsafe { self.0.get::<Images<'a>>(IMAGES, None) }.expect("the verifier requires it")
        }

        fn vectors(&self) -> Option<String> {
            // SAFETY: as in `seq`; the verifier checked this slot as a UTF-8 string, if it is there.
            unsafe { self.0.get::<ForwardsUOffset<&str>>(VECTORS, None) }.map(str::to_owned)
        }
    }

    impl Image<'_> {
        fn name(&self) -> String {
            // SAFETY: an `Image` comes only out of the verified vector of `Root`, each of whose elements the verifier
            // checked, this slot as a UTF-8 string that is present.
            unsafe { self.0.get::<ForwardsUOffset<&str>>(IMAGE_NAME, None) }
                .expect("the verifier requires it")
                .to_owned()
        }

        fn bytes(&self) -> u64 {
            // SAFETY: as in `name`; this slot was checked as a u64.
            unsafe { self.0.get::<u64>(IMAGE_BYTES, Some(0)) }.unwrap_or(0)
        }
    }

    impl<'a> Follow<'a> for Root<'a> {
        type Inner = Root<'a>;
        unsafe fn follow(body: &'a [u8], at: usize) -> Root<'a> {
            // SAFETY: the caller of `follow` promises a table at `at`.
            Root(unsafe { Table::new(body, at) })
        }
    }

    impl<'a> Follow<'a> for Image<'a> {
        type Inner = Image<'a>;
        unsafe fn follow(body: &'a [u8], at: usize) -> Image<'a> {
            // SAFETY: the caller of `follow` promises a table at `at`.
            Image(unsafe { Table::new(body, at) })
        }
    }

    impl Verifiable for Root<'_> {
        fn run_verifier(verifier: &mut Verifier<'_, '_>, at: usize) -> Result<(), InvalidFlatbuffer> {
            verifier
                .visit_table(at)?
                .visit_field::<u64>("seq", SEQ, false)?
                .visit_field::<Images<'_>>("images", IMAGES, true)?
                .visit_field::<ForwardsUOffset<&str>>("vectors", VECTORS, false)?
                .finish();
            Ok(())
        }
    }

    impl Verifiable for Image<'_> {
        fn run_verifier(verifier: &mut Verifier<'_, '_>, at: usize) -> Result<(), InvalidFlatbuffer> {
            verifier
                .visit_table(at)?
                .visit_field::<ForwardsUOffset<&str>>("name", IMAGE_NAME, true)?
                .visit_field::<u64>("bytes", IMAGE_BYTES, false)?
                .finish();
            Ok(())
        }
    }
}
