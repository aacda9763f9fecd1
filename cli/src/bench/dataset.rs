//! Corpora: `.npy`, raw `.f16`, `.fvecs` and `.ivecs`, payload lines, and a synthetic corpus for runs without files.
//!
//! Every reader checks lengths before it allocates and names the file in its errors.
use nigh_engine::random::SplitMix64;
use std::path::Path;

/// Rows of equal length.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix<T> {
    /// Values per row.
    pub dim: usize,
    /// `count * dim` values.
    pub values: Vec<T>,
}

impl<T> Matrix<T> {
    /// Number of rows.
    pub fn count(&self) -> usize {
        self.values.len() / self.dim.max(1)
    }

    /// Row `index`.
    pub fn row(&self, index: usize) -> &[T] {
        &self.values[index * self.dim..][..self.dim]
    }

    /// Drops the rows from `count` on.
    pub fn truncate(&mut self, count: usize) {
        self.values.truncate(count.saturating_mul(self.dim));
    }
}

/// Reads vectors; the format follows from the file's name. `dim` is needed for raw `.f16` alone.
///
/// # Errors
/// A sentence naming the file and what is wrong with it.
pub fn read_vectors(path: &Path, dim: Option<usize>) -> Result<Matrix<f32>, String> {
    with_bytes(path, |extension, bytes| match extension {
        "npy" => npy(bytes)?.floats(),
        "f16" => raw_f16(bytes, dim.ok_or("raw f16 rows need --dim")?),
        "fvecs" => Ok(vecs(bytes)?.map(f32::from_le_bytes)),
        _ => Err("unknown kind of vector file (.npy, .f16 or .fvecs)".into()),
    })
}

/// Reads rows of nearest ids from `.npy` (i32 or i64) or `.ivecs`.
///
/// # Errors
/// A sentence naming the file and what is wrong with it.
pub fn read_truth(path: &Path) -> Result<Matrix<u64>, String> {
    with_bytes(path, |extension, bytes| match extension {
        "npy" => npy(bytes)?.ids(),
        "ivecs" => ids(vecs(bytes)?.map(i32::from_le_bytes)),
        _ => Err("unknown kind of truth file (.npy or .ivecs)".into()),
    })
}

/// Reads one JSON object per line and encodes each as a tagged payload; `id` keys are left out.
///
/// # Errors
/// A sentence naming the file, the line and what is wrong with it.
pub fn read_payloads(path: &Path) -> Result<Vec<Vec<u8>>, String> {
    with_bytes(path, |_, bytes| {
        let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
        let lines = text.lines().enumerate();
        lines.map(|(index, line)| payload(line).map_err(|e| format!("line {}: {e}", index + 1))).collect()
    })
}

/// A reproducible corpus with the clustered shape of real embeddings: `count` rows around `count / 50` centres.
///
/// # Errors
/// That there is no memory for so many.
pub fn synthetic(count: usize, dim: usize, seed: u64) -> Result<Matrix<f32>, String> {
    let mut values = Vec::new();
    let reserved = count.checked_mul(dim).map(|components| values.try_reserve_exact(components));
    if !matches!(reserved, Some(Ok(()))) {
        return Err(format!("{count} vectors of {dim} components do not fit into memory"));
    }
    let mut random = SplitMix64(seed);
    let centres = (count / 50).clamp(1, 1000);
    let centre_values: Vec<f32> = (0..centres * dim).map(|_| unit(&mut random)).collect();
    for _ in 0..count {
        let centre = random.next() as usize % centres;
        values.extend((0..dim).map(|column| centre_values[centre * dim + column] + 0.5 * unit(&mut random)));
    }
    Ok(Matrix { dim, values })
}

/// Roughly normal with variance 1: the sum of four uniforms.
fn unit(random: &mut SplitMix64) -> f32 {
    let bits = random.next();
    let sum: f32 = (0..4).map(|part| ((bits >> (part * 16)) & 0xffff) as f32 / 65_536.0 - 0.5).sum();
    sum * 1.732
}

fn with_bytes<R>(path: &Path, read: impl Fn(&str, &[u8]) -> Result<R, String>) -> Result<R, String> {
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    let bytes = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    read(extension, &bytes).map_err(|reason| format!("{}: {reason}", path.display()))
}

/// An array file: element type, shape of two dimensions, little-endian row-major data.
struct Npy<'a> {
    kind: String,
    rows: usize,
    dim: usize,
    data: &'a [u8],
}

fn npy(bytes: &[u8]) -> Result<Npy<'_>, String> {
    let bad = || "not a two-dimensional, little-endian, row-major .npy array".to_owned();
    let (header_at, header_len) = match bytes.get(..12).ok_or_else(bad)? {
        [0x93, b'N', b'U', b'M', b'P', b'Y', 1, _, low, high, ..] => {
            (10, u16::from_le_bytes([*low, *high]) as usize)
        }
        [0x93, b'N', b'U', b'M', b'P', b'Y', 2 | 3, _, a, b, c, d] => {
            (12, u32::from_le_bytes([*a, *b, *c, *d]) as usize)
        }
        _ => return Err(bad()),
    };
    let header = bytes.get(header_at..header_at + header_len).ok_or_else(bad)?;
    let header = std::str::from_utf8(header).map_err(|_| bad())?;
    let value = |key: &str| header.split_once(&format!("'{key}':")).map(|(_, rest)| rest.trim_start());
    let kind = value("descr").and_then(|rest| rest.strip_prefix('\'')?.split('\'').next()).ok_or_else(bad)?;
    if !value("fortran_order").ok_or_else(bad)?.starts_with("False") {
        return Err(bad());
    }
    let shape = value("shape").and_then(|rest| rest.strip_prefix('(')?.split(')').next()).ok_or_else(bad)?;
    let sizes: Option<Vec<usize>> = shape
        .split(',')
        .map(str::trim)
        .filter(|size| !size.is_empty())
        .map(|size| size.parse().ok())
        .collect();
    let [rows, dim] = sizes.ok_or_else(bad)?[..] else { return Err(bad()) };
    Ok(Npy { kind: kind.to_owned(), rows, dim, data: &bytes[header_at + header_len..] })
}

impl Npy<'_> {
    fn elements<const N: usize, T>(&self, convert: impl Fn([u8; N]) -> T) -> Result<Matrix<T>, String> {
        let bytes = self.rows.checked_mul(self.dim).and_then(|values| values.checked_mul(N));
        if bytes != Some(self.data.len()) || self.dim == 0 {
            return Err(format!(
                "{} x {} values announced, {} bytes found",
                self.rows,
                self.dim,
                self.data.len()
            ));
        }
        let (elements, _) = self.data.as_chunks::<N>();
        Ok(Matrix { dim: self.dim, values: elements.iter().map(|element| convert(*element)).collect() })
    }

    fn floats(&self) -> Result<Matrix<f32>, String> {
        match self.kind.as_str() {
            "<f2" => self.elements(|bytes| half::f16::from_le_bytes(bytes).to_f32()),
            "<f4" => self.elements(f32::from_le_bytes),
            "<i4" => self.elements(|bytes| i32::from_le_bytes(bytes) as f32),
            kind => Err(format!("elements of type {kind:?} are not vectors (f2, f4 or i4)")),
        }
    }

    fn ids(&self) -> Result<Matrix<u64>, String> {
        match self.kind.as_str() {
            "<i4" => ids(self.elements(i32::from_le_bytes)?),
            "<i8" => ids(self.elements(i64::from_le_bytes)?),
            kind => Err(format!("elements of type {kind:?} are not ids (i4 or i8)")),
        }
    }
}

fn ids<T: Copy>(matrix: Matrix<T>) -> Result<Matrix<u64>, String>
where
    u64: TryFrom<T>,
{
    let values: Result<Vec<u64>, _> = matrix.values.iter().map(|&value| u64::try_from(value)).collect();
    Ok(Matrix { dim: matrix.dim, values: values.map_err(|_| "negative id")? })
}

fn raw_f16(bytes: &[u8], dim: usize) -> Result<Matrix<f32>, String> {
    let (elements, rest) = bytes.as_chunks::<2>();
    if dim == 0 || !rest.is_empty() || elements.len() % dim != 0 {
        return Err(format!("{} bytes are no whole number of rows of {dim} f16 values", bytes.len()));
    }
    Ok(Matrix {
        dim,
        values: elements.iter().map(|element| half::f16::from_le_bytes(*element).to_f32()).collect(),
    })
}

/// Rows of `dim: i32` and `dim` four-byte elements.
fn vecs(bytes: &[u8]) -> Result<Matrix<[u8; 4]>, String> {
    let (words, rest) = bytes.as_chunks::<4>();
    let dim = words.first().map_or(0, |word| i32::from_le_bytes(*word));
    let row_len = usize::try_from(dim).unwrap_or(0) + 1;
    if dim <= 0 || !rest.is_empty() || words.len() % row_len != 0 {
        return Err("not a whole number of rows of one length".into());
    }
    let mut values = Vec::with_capacity(words.len());
    for row in words.chunks_exact(row_len) {
        if i32::from_le_bytes(row[0]) != dim {
            return Err("rows of different lengths".into());
        }
        values.extend_from_slice(&row[1..]);
    }
    Ok(Matrix { dim: row_len - 1, values })
}

impl Matrix<[u8; 4]> {
    fn map<T>(self, convert: impl Fn([u8; 4]) -> T) -> Matrix<T> {
        Matrix { dim: self.dim, values: self.values.into_iter().map(convert).collect() }
    }
}

/// One line's object in the tagged form of the interface.
fn payload(line: &str) -> Result<Vec<u8>, String> {
    tag(line, |key| key != "id")
}

/// A plain JSON object in the tagged form of the interface.
///
/// # Errors
/// A sentence: no object, or a value that is neither a scalar nor a list of one kind.
pub fn tagged(object: &str) -> Result<Vec<u8>, String> {
    tag(object, |_| true)
}

fn tag(object: &str, takes: impl Fn(&str) -> bool) -> Result<Vec<u8>, String> {
    use serde_json::{Map, Value, json};
    let object: Map<String, Value> = serde_json::from_str(object).map_err(|error| error.to_string())?;
    let mut tagged = Map::new();
    for (key, value) in object.into_iter().filter(|(key, _)| takes(key)) {
        let value = match value {
            Value::Null => json!({"kind": "none"}),
            Value::Bool(value) => json!({"kind": "bool", "bool": value}),
            Value::String(text) => json!({"kind": "string", "str": text}),
            Value::Number(number) if number.is_i64() => json!({"kind": "int", "int": number}),
            Value::Number(number) => json!({"kind": "float", "flt": number}),
            Value::Array(items) if items.iter().all(Value::is_string) => {
                json!({"kind": "strings", "strs": items})
            }
            Value::Array(items) if items.iter().all(Value::is_i64) => json!({"kind": "ints", "ints": items}),
            Value::Array(items) if items.iter().all(Value::is_number) => {
                json!({"kind": "floats", "flts": items})
            }
            _ => return Err(format!("{key:?} is neither a scalar nor a list of one kind")),
        };
        tagged.insert(key, value);
    }
    Ok(Value::Object(tagged).to_string().into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn npy_file(header: &str, data: &[u8]) -> Vec<u8> {
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend_from_slice(&(header.len() as u16).to_le_bytes());
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(data);
        bytes
    }

    #[test]
    fn npy_of_halves_floats_and_ids() {
        let halves: Vec<u8> =
            [1.0f32, -2.0, 0.5, 0.0].iter().flat_map(|x| half::f16::from_f32(*x).to_le_bytes()).collect();
        let file = npy_file("{'descr': '<f2', 'fortran_order': False, 'shape': (2, 2), }", &halves);
        let matrix = npy(&file).unwrap().floats().unwrap();
        assert_eq!((matrix.dim, matrix.count(), matrix.row(1)), (2, 2, &[0.5, 0.0][..]));

        let data: Vec<u8> = [7i32, 8, 9].iter().flat_map(|x| x.to_le_bytes()).collect();
        let file = npy_file("{'descr': '<i4', 'fortran_order': False, 'shape': (1, 3)}", &data);
        assert_eq!(npy(&file).unwrap().ids().unwrap().row(0), [7, 8, 9]);
    }

    #[test]
    fn npy_that_lies_is_refused() {
        let short = npy_file("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2)}", &[0; 8]);
        assert!(npy(&short).unwrap().floats().is_err());
        let huge =
            npy_file("{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775807, 9)}", &[0; 8]);
        assert!(npy(&huge).unwrap().floats().is_err());
        for header in [
            "",
            "{'descr': '<f4', 'fortran_order': True, 'shape': (1, 1)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}",
        ] {
            assert!(npy(&npy_file(header, &[0; 4])).is_err(), "{header}");
        }
        assert!(npy(b"short").is_err());
    }

    #[test]
    fn vecs_rows() {
        let words = [
            2i32.to_le_bytes(),
            1f32.to_le_bytes(),
            2f32.to_le_bytes(),
            2i32.to_le_bytes(),
            3f32.to_le_bytes(),
            4f32.to_le_bytes(),
        ];
        let bytes = words.concat();
        assert_eq!(vecs(&bytes).unwrap().map(f32::from_le_bytes).row(1), [3.0, 4.0]);
        assert!(vecs(&bytes[..20]).is_err());
        assert!(vecs(&bytes[..22]).is_err());
        assert!(vecs(&[]).is_err());
        assert!(vecs(&(-1i32).to_le_bytes()).is_err());
    }

    #[test]
    fn raw_rows_need_their_length() {
        assert_eq!(raw_f16(&[0, 0x3c, 0, 0], 2).unwrap().row(0), [1.0, 0.0]);
        assert!(raw_f16(&[0; 6], 2).is_err());
        assert!(raw_f16(&[0; 6], 0).is_err());
    }

    #[test]
    fn payload_lines_are_tagged() {
        let tagged = payload(r#"{"id":3,"pos":"noun","lex":4,"w":["a"],"x":1.5,"n":null}"#).unwrap();
        assert_eq!(
            String::from_utf8(tagged).unwrap(),
            r#"{"pos":{"kind":"string","str":"noun"},"lex":{"kind":"int","int":4},"w":{"kind":"strings","strs":["a"]},"x":{"kind":"float","flt":1.5},"n":{"kind":"none"}}"#
        );
        assert!(payload(r#"{"a":{}}"#).is_err());
        assert!(payload("[]").is_err());
    }

    #[test]
    fn the_synthetic_corpus_is_reproducible() {
        let one = synthetic(100, 8, 1).unwrap();
        assert_eq!(one, synthetic(100, 8, 1).unwrap());
        assert_ne!(one, synthetic(100, 8, 2).unwrap());
        for count in [1 << 60, usize::MAX] {
            assert!(synthetic(count, 96, 1).unwrap_err().contains("do not fit into memory"));
        }
        assert_eq!((one.count(), one.dim), (100, 8));
    }
}
