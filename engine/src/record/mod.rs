//! Codecs of bytes that reach a disk.
