//! Files of vectors, `.npy` and `.fvecs`, row by row, so that they may be larger than memory.
use super::options::Format;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;

/// The header of a .npy file of this build: padded, so that the number of rows can be written when it is known.
const NPY_HEADER_BYTES: usize = 128;
/// The longest header of a .npy file that is read.
const HEADER_BYTES_MAX: usize = 64 << 10;
/// The longest row that is read.
const DIM_MAX: usize = 65_536;
const BUFFER_BYTES: usize = 256 << 10;

/// Writes rows of one length.
pub struct VectorWriter {
    to: BufWriter<File>,
    format: Format,
    dim: usize,
    crc: u32,
    row: Vec<u8>,
}

impl VectorWriter {
    /// Begins a file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn begin(file: File, format: Format, dim: usize) -> io::Result<VectorWriter> {
        let mut writer = VectorWriter::over(file, format, dim, 0);
        if format == Format::Npy {
            writer.to.write_all(&npy_header(0, dim))?;
        }
        Ok(writer)
    }

    /// Goes on behind `rows` rows, whose checksum is `crc`; what follows them is cut off.
    ///
    /// # Errors
    /// The file cannot be read or written, or it has fewer rows (`InvalidData`).
    pub fn go_on(
        mut file: File,
        format: Format,
        dim: usize,
        rows: u64,
        crc: u32,
    ) -> io::Result<VectorWriter> {
        let len = start_of(format) + rows * row_bytes(format, dim);
        if file.metadata()?.len() < len {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("it has fewer than {rows} rows: it was cut; -overwrite begins anew"),
            ));
        }
        file.set_len(len)?;
        file.seek(SeekFrom::End(0))?;
        Ok(VectorWriter::over(file, format, dim, crc))
    }

    fn over(file: File, format: Format, dim: usize, crc: u32) -> VectorWriter {
        VectorWriter { to: BufWriter::with_capacity(BUFFER_BYTES, file), format, dim, crc, row: Vec::new() }
    }

    /// CRC-32C of all rows, as they are in the file.
    pub fn crc(&self) -> u32 {
        self.crc
    }

    /// Writes a row.
    ///
    /// # Errors
    /// The file cannot be written, or the row has another length (`InvalidData`).
    pub fn row(&mut self, vector: &[f32]) -> io::Result<()> {
        if vector.len() != self.dim {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("a vector has {} components, and the file {}", vector.len(), self.dim),
            ));
        }
        self.row.clear();
        if self.format == Format::Fvecs {
            self.row.extend_from_slice(&(self.dim as i32).to_le_bytes());
        }
        self.row.extend(vector.iter().flat_map(|value| value.to_le_bytes()));
        self.crc = crc32c::crc32c_append(self.crc, &self.row);
        self.to.write_all(&self.row)
    }

    /// Writes out what was written so far.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn flush(&mut self) -> io::Result<()> {
        self.to.flush()?;
        self.to.get_ref().sync_data()
    }

    /// Ends the file, which has `rows` rows.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn finish(mut self, rows: u64) -> io::Result<()> {
        self.to.flush()?;
        let mut file = self.to.into_inner().map_err(|error| error.into_error())?;
        if self.format == Format::Npy {
            file.seek(SeekFrom::Start(0))?;
            file.write_all(&npy_header(rows, self.dim))?;
        }
        file.sync_all()
    }
}

/// Where the rows begin in a file of this build.
fn start_of(format: Format) -> u64 {
    if format == Format::Npy { NPY_HEADER_BYTES as u64 } else { 0 }
}

fn row_bytes(format: Format, dim: usize) -> u64 {
    (if format == Format::Fvecs { 4 } else { 0 }) + 4 * dim as u64
}

/// The header of version 1.0 of the format.
fn npy_header(rows: u64, dim: usize) -> Vec<u8> {
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend_from_slice(&((NPY_HEADER_BYTES - 10) as u16).to_le_bytes());
    let text = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {dim}), }}");
    bytes.extend_from_slice(text.as_bytes());
    // Two numbers of 20 digits fit as well.
    bytes.resize(NPY_HEADER_BYTES - 1, b' ');
    bytes.push(b'\n');
    bytes
}

/// Reads rows of one length.
#[derive(Debug)]
pub struct VectorReader {
    from: BufReader<File>,
    format: Format,
    dim: usize,
    /// As the header of a .npy file says; `None` in other files.
    rows: Option<u64>,
    read: u64,
    crc: u32,
    row: Vec<u8>,
}

impl VectorReader {
    /// Opens a file whose rows have `dim` components.
    ///
    /// # Errors
    /// A sentence without the name of the file: it cannot be read, or has another shape.
    pub fn open(path: &Path, format: Format, dim: usize) -> Result<VectorReader, String> {
        let file = File::open(path).map_err(|error| error.to_string())?;
        let mut from = BufReader::with_capacity(BUFFER_BYTES, file);
        let rows = match format {
            Format::Npy => {
                let (rows, found) = read_npy_header(&mut from)?;
                if found != dim as u64 {
                    return Err(format!(
                        "its vectors have {found} components, and the file of lines says {dim}"
                    ));
                }
                Some(rows)
            }
            _ => None,
        };
        if dim == 0 || dim > DIM_MAX {
            return Err(format!("vectors of {dim} components; 1 to {DIM_MAX} are possible"));
        }
        Ok(VectorReader { from, format, dim, rows, read: 0, crc: 0, row: Vec::new() })
    }

    /// CRC-32C of all rows read so far.
    pub fn crc(&self) -> u32 {
        self.crc
    }

    /// The next row; `None` behind the last one.
    ///
    /// # Errors
    /// A sentence with the number of the row: it cannot be read, is cut, or has another length.
    pub fn next(&mut self) -> Result<Option<Vec<f32>>, String> {
        if self.rows.is_some_and(|rows| self.read >= rows) {
            return Ok(None);
        }
        let len = row_bytes(self.format, self.dim) as usize;
        self.row.clear();
        let read =
            (&mut self.from).take(len as u64).read_to_end(&mut self.row).map_err(|error| self.at(&error))?;
        match read {
            0 if self.rows.is_none() => return Ok(None),
            _ if read < len => return Err(self.at(&"the file is cut short there")),
            _ => {}
        }
        self.crc = crc32c::crc32c_append(self.crc, &self.row);
        let values = match self.format {
            Format::Fvecs => {
                let (head, values) = self.row.split_at(4);
                if head != (self.dim as i32).to_le_bytes() {
                    return Err(self.at(&format_args!("it has not {} components", self.dim)));
                }
                values
            }
            _ => &self.row[..],
        };
        let vector = values.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        self.read += 1;
        Ok(Some(vector))
    }

    fn at(&self, reason: &dyn std::fmt::Display) -> String {
        format!("row {}: {reason}", self.read + 1)
    }
}

/// Rows and columns of a two-dimensional array of little-endian f32, row by row.
fn read_npy_header(from: &mut impl Read) -> Result<(u64, u64), String> {
    let bad = || "not a two-dimensional, little-endian, row-major .npy array of f32".to_owned();
    let mut start = [0; 10];
    from.read_exact(&mut start).map_err(|_| bad())?;
    let len = match start {
        [0x93, b'N', b'U', b'M', b'P', b'Y', 1, _, low, high] => u16::from_le_bytes([low, high]) as usize,
        [0x93, b'N', b'U', b'M', b'P', b'Y', 2 | 3, _, low, high] => {
            let mut rest = [0; 2];
            from.read_exact(&mut rest).map_err(|_| bad())?;
            u32::from_le_bytes([low, high, rest[0], rest[1]]) as usize
        }
        _ => return Err(bad()),
    };
    if len > HEADER_BYTES_MAX {
        return Err(bad());
    }
    let mut header = vec![0; len];
    from.read_exact(&mut header).map_err(|_| bad())?;
    let header = String::from_utf8(header).map_err(|_| bad())?;
    let value = |key: &str| header.split_once(&format!("'{key}':")).map(|(_, rest)| rest.trim_start());
    if !value("descr").ok_or_else(bad)?.starts_with("'<f4'")
        || !value("fortran_order").ok_or_else(bad)?.starts_with("False")
    {
        return Err(bad());
    }
    let shape = value("shape").and_then(|rest| rest.strip_prefix('(')?.split(')').next()).ok_or_else(bad)?;
    let sizes: Option<Vec<u64>> = shape
        .split(',')
        .map(str::trim)
        .filter(|size| !size.is_empty())
        .map(|size| size.parse().ok())
        .collect();
    match sizes.ok_or_else(bad)?[..] {
        [rows, dim] => Ok((rows, dim)),
        _ => Err(bad()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: [[f32; 3]; 4] = [[1.0, -2.0, 0.5], [0.0, 1e-30, 3.0], [7.0, 8.0, 9.0], [f32::MAX, -0.0, 1.5]];

    fn read(path: &Path, format: Format, dim: usize) -> Result<(Vec<Vec<f32>>, u32), String> {
        let mut reader = VectorReader::open(path, format, dim)?;
        let mut rows = Vec::new();
        while let Some(row) = reader.next()? {
            rows.push(row);
        }
        Ok((rows, reader.crc()))
    }

    #[test]
    fn rows_come_back_and_a_cut_file_does_not() {
        let folder = tempfile::tempdir().unwrap();
        for format in [Format::Npy, Format::Fvecs] {
            let path = folder.path().join(format.name());
            let mut writer = VectorWriter::begin(File::create(&path).unwrap(), format, 3).unwrap();
            ROWS[..2].iter().for_each(|row| writer.row(row).unwrap());
            writer.flush().unwrap();
            let crc = writer.crc();
            writer.row(&[9.0; 3]).unwrap();
            assert!(writer.row(&[1.0]).is_err());
            drop(writer);
            // The third row is behind what was noted.
            let file = File::options().read(true).write(true).open(&path).unwrap();
            let mut writer = VectorWriter::go_on(file, format, 3, 2, crc).unwrap();
            ROWS[2..].iter().for_each(|row| writer.row(row).unwrap());
            let crc = writer.crc();
            writer.finish(4).unwrap();

            let (rows, found) = read(&path, format, 3).unwrap();
            assert_eq!(rows, ROWS);
            assert_eq!(found, crc);
            assert!(read(&path, format, 2).is_err());

            let bytes = std::fs::read(&path).unwrap();
            for cut in 0..bytes.len() {
                std::fs::write(&path, &bytes[..cut]).unwrap();
                match read(&path, format, 3) {
                    Err(_) => {}
                    // Rows of a .fvecs file are not counted anywhere; the trailer of the lines notices.
                    Ok((rows, other)) => {
                        assert!(format == Format::Fvecs && rows.len() < 4 && other != crc, "{cut}")
                    }
                }
            }
            let file = File::options().read(true).write(true).open(&path).unwrap();
            assert!(VectorWriter::go_on(file, format, 3, 9, 0).is_err());
        }
    }

    #[test]
    fn other_arrays_are_refused() {
        let file = |header: &str| {
            let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
            bytes.extend_from_slice(&(header.len() as u16).to_le_bytes());
            bytes.extend_from_slice(header.as_bytes());
            bytes
        };
        let good = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
        assert_eq!(read_npy_header(&mut &file(good)[..]), Ok((2, 3)));
        for (from, to) in [("<f4", "<f8"), ("False", "True"), ("(2, 3)", "(6,)"), ("2, 3", "2, x")] {
            assert!(read_npy_header(&mut &file(&good.replace(from, to))[..]).is_err(), "{to}");
        }
        assert!(read_npy_header(&mut &b"\x93NUMPY\x02\x00\xff\xff\xff\xff"[..]).is_err());
    }
}
