//! Codecs of bytes that reach a disk.
//!
//! [`image`] holds the slot records of a dense collection's checkpoint images. The files around the records (magic,
//! format version, checksums) belong to whoever writes them; the records carry no checksum of their own, but a decoder
//! given any bytes returns an error instead of panicking.
pub mod image;
