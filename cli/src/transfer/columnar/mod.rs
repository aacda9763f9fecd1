//! Files of Parquet: another form of the lines of an export, with a column for each part of a line.
//!
//! An export always writes lines first, so that it can be continued when it is interrupted, and converts them to columns at its end. An import
//! converts rows to lines, so that everything after the reading of a file is the same for every format. Header and trailer are in the footer.
#[cfg(feature = "parquet")]
mod cells;
#[cfg(feature = "parquet")]
mod read;
#[cfg(all(test, feature = "parquet"))]
mod tests;
#[cfg(feature = "parquet")]
mod write;

use super::header::Header;
use super::line_reader::FileLines;
use super::options::ColumnFlags;
use std::path::Path;

/// Whether a name is that of a file of Parquet.
pub fn is_named(path: &str) -> bool {
    Path::new(path).extension().is_some_and(|ending| ending.eq_ignore_ascii_case("parquet"))
}

/// What a file of Parquet begins with.
pub const MAGIC: &[u8] = b"PAR1";

/// Checks that this build knows the format, before anything is read or written.
///
/// # Errors
/// A sentence that names the feature.
pub fn check() -> Result<(), String> {
    match cfg!(feature = "parquet") {
        true => Ok(()),
        false => {
            Err("this build cannot read or write Parquet: it was made without the cargo feature parquet \
                      (cargo build --release -p nigh --features parquet)"
                .into())
        }
    }
}

/// Checks that the header of an export determines the columns of its file.
///
/// # Errors
/// A sentence.
pub fn check_header(header: &Header) -> Result<(), String> {
    #[cfg(feature = "parquet")]
    cells::columns_of(header)?;
    let _ = header;
    check()
}

/// Opens the rows of a file as lines.
///
/// # Errors
/// A sentence without the name of the file.
#[cfg(feature = "parquet")]
pub fn open(path: &Path, flags: &ColumnFlags) -> Result<(Header, FileLines), String> {
    let (header, rows) = read::RowReader::open(path, flags)?;
    Ok((header, Box::new(rows)))
}

/// Makes columns of the lines of a whole export.
///
/// # Errors
/// A sentence.
#[cfg(feature = "parquet")]
pub fn convert(lines: &Path, to: &Path) -> Result<(), String> {
    write::convert(lines, to)
}

/// As in a build with the feature.
///
/// # Errors
/// Always.
#[cfg(not(feature = "parquet"))]
pub fn open(_path: &Path, _flags: &ColumnFlags) -> Result<(Header, FileLines), String> {
    check().and_then(|()| Err(String::new()))
}

/// As in a build with the feature.
///
/// # Errors
/// Always.
#[cfg(not(feature = "parquet"))]
pub fn convert(_lines: &Path, _to: &Path) -> Result<(), String> {
    check()
}
