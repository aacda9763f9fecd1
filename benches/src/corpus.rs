//! Reading a corpus directory: `docs.f16.npy`, `queries.f16.npy`, `truth100.i32.npy`.
//!
//! A `.npy` file is a magic, a version, the length of a text header, the header (a dictionary with `descr`,
//! `fortran_order` and `shape`) and raw little-endian rows.
use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

/// Rows of equal length.
pub struct Rows<T> {
    /// Values per row.
    pub width: usize,
    /// All rows, one after the other.
    pub values: Vec<T>,
}

impl<T> Rows<T> {
    /// Number of rows.
    pub fn len(&self) -> usize {
        self.values.len() / self.width
    }

    /// No rows.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// One row.
    pub fn row(&self, index: usize) -> &[T] {
        &self.values[index * self.width..][..self.width]
    }
}

/// A set of documents, queries and the exact nearest documents of each query.
pub struct Corpus {
    /// Document vectors; row = id.
    pub docs: Rows<f32>,
    /// Query vectors.
    pub queries: Rows<f32>,
    /// Ids of the nearest documents of each query, nearest first.
    pub truth: Rows<i32>,
}

impl Corpus {
    /// Reads a directory.
    ///
    /// # Errors
    /// When a file is missing or is not a two-dimensional array of the expected type; the error names it.
    pub fn read(directory: &Path) -> io::Result<Corpus> {
        Ok(Corpus {
            docs: read_f16(&directory.join("docs.f16.npy"))?,
            queries: read_f16(&directory.join("queries.f16.npy"))?,
            truth: read_i32(&directory.join("truth100.i32.npy"))?,
        })
    }
}

/// A file of half-precision rows, widened.
///
/// # Errors
/// As [`Corpus::read`].
pub fn read_f16(path: &Path) -> io::Result<Rows<f32>> {
    read(path, "<f2", |bytes: [u8; 2]| half::f16::from_le_bytes(bytes).to_f32())
}

/// A file of 32-bit integer rows.
///
/// # Errors
/// As [`Corpus::read`].
pub fn read_i32(path: &Path) -> io::Result<Rows<i32>> {
    read(path, "<i4", i32::from_le_bytes)
}

fn read<T, const N: usize>(path: &Path, descr: &str, parse: impl Fn([u8; N]) -> T) -> io::Result<Rows<T>> {
    let wrong = |what: &str| io::Error::new(ErrorKind::InvalidData, format!("{}: {what}", path.display()));
    let bytes = fs::read(path).map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))?;
    let (header, data) = split(&bytes).ok_or_else(|| wrong("no npy header"))?;
    if !header.contains(&format!("'{descr}'")) || !header.contains("'fortran_order': False") {
        return Err(wrong(&format!("expected row-major {descr}, found {header}")));
    }
    let shape = header.split_once("'shape': (").and_then(|(_, rest)| rest.split_once(')'));
    let shape: Vec<usize> =
        shape.map_or(vec![], |(shape, _)| shape.split(',').filter_map(|n| n.trim().parse().ok()).collect());
    let [rows, width] = shape[..] else {
        return Err(wrong(&format!("expected two dimensions, found {header}")));
    };
    if width == 0 || data.len() != rows * width * N {
        return Err(wrong(&format!("{} bytes for {rows} rows of {width}", data.len())));
    }
    Ok(Rows { width, values: data.as_chunks::<N>().0.iter().map(|&bytes| parse(bytes)).collect() })
}

/// Header text and data.
fn split(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let rest = bytes.strip_prefix(b"\x93NUMPY")?;
    let (len, rest) = match rest {
        [1, _, a, b, rest @ ..] => (usize::from(u16::from_le_bytes([*a, *b])), rest),
        [2 | 3, _, a, b, c, d, rest @ ..] => (u32::from_le_bytes([*a, *b, *c, *d]) as usize, rest),
        _ => return None,
    };
    let (header, data) = rest.split_at_checked(len)?;
    Some((std::str::from_utf8(header).ok()?, data))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(header: &str, data: &[u8]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((header.len() as u16).to_le_bytes());
        bytes.extend(header.as_bytes());
        bytes.extend(data);
        fs::write(file.path(), bytes).unwrap();
        file
    }

    #[test]
    fn reads_rows_and_refuses_what_does_not_fit() {
        let header = "{'descr': '<i4', 'fortran_order': False, 'shape': (2, 1), }\n";
        let rows = read_i32(file(header, &[1, 0, 0, 0, 255, 255, 255, 255]).path()).unwrap();
        assert_eq!((rows.len(), rows.width, rows.row(0), rows.row(1)), (2, 1, &[1][..], &[-1][..]));
        for (header, data) in
            [(header, 7), (&header.replace("<i4", "<i8"), 8), (&header.replace("2, 1", "2,"), 8)]
        {
            let file = file(header, &vec![0; data]);
            let error = read_i32(file.path()).err().unwrap().to_string();
            assert!(error.contains(&file.path().display().to_string()), "{error}");
        }
    }
}
