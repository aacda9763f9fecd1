//! Reads the lines of an export, counts them, and says at the end whether the file is whole.
use super::header::{End, Family, Header, Trailer, hex};
use super::shape::Shape;
use std::io::{self, BufRead, Read};

/// The longest line. A document of 4,096 token vectors of 1,024 components has about 50 MiB.
pub const LINE_BYTES_MAX: usize = 256 << 20;

/// The lines of a file on disk or of the standard input, whatever its format is.
pub type FileLines = Box<dyn Lines>;

/// What an import reads: the lines after a header.
pub trait Lines {
    /// The number of the line read last; the header is line 1.
    fn number(&self) -> u64;

    /// Reads the next line between header and trailer into `line`, without its end; `false` behind the last one.
    ///
    /// # Errors
    /// A sentence with the number of the line: the file cannot be read, or the line is too long.
    fn next(&mut self, line: &mut Vec<u8>) -> Result<bool, String>;

    /// How the file ended; known when [`Self::next`] has said that there are no more lines.
    fn ended(&self) -> Option<&Ended>;

    /// Says what the points of the collection look like, before the first line is read. A file of another program chooses its columns by that.
    ///
    /// # Errors
    /// A sentence: the file has no columns that fit.
    fn fit(&mut self, family: Family, shape: &Shape) -> Result<(), String> {
        let _ = (family, shape);
        Ok(())
    }
}

impl<R: BufRead> Lines for LineReader<R> {
    fn number(&self) -> u64 {
        LineReader::number(self)
    }

    fn next(&mut self, line: &mut Vec<u8>) -> Result<bool, String> {
        LineReader::next(self, line)
    }

    fn ended(&self) -> Option<&Ended> {
        LineReader::ended(self)
    }
}

/// The lines of a file, after its header.
pub struct LineReader<R> {
    from: R,
    /// The number of the line read last; the header is line 1.
    number: u64,
    /// CRC-32C of all lines before the one read last, and of that one when `has_line`.
    crc: u32,
    ended: Option<Ended>,
}

/// How a file ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The file has a trailer that agrees with the lines before it.
    Whole {
        /// CRC-32C of the file of vectors, as the trailer has it.
        vectors_crc32c: Option<String>,
    },
    /// The file has no such trailer; the sentence says what is wrong.
    Broken(String),
}

impl<R: BufRead> LineReader<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// A sentence: the file cannot be read, or has no header that this build knows.
    pub fn open(mut from: R) -> Result<(Header, LineReader<R>), String> {
        let mut line = Vec::new();
        read_line(&mut from, &mut line).map_err(|error| format!("line 1: {error}"))?;
        let header = Header::parse(line.trim_ascii_end())?;
        let crc = crc32c::crc32c(&line);
        Ok((header, LineReader { from, number: 1, crc, ended: None }))
    }

    /// The number of the line read last.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Reads the next line between header and trailer into `line`, without its end; `false` behind the last one. [`Self::ended`] then says
    /// how the file ended.
    ///
    /// # Errors
    /// A sentence with the number of the line: the file cannot be read, or the line is too long.
    pub fn next(&mut self, line: &mut Vec<u8>) -> Result<bool, String> {
        if self.ended.is_some() {
            return Ok(false);
        }
        let number = self.number + 1;
        read_line(&mut self.from, line).map_err(|error| format!("line {number}: {error}"))?;
        if line.is_empty() {
            let lines = self.number - 1;
            self.ended = Some(Ended::Broken(format!(
                "the file is cut short: it ends behind line {} ({lines} points or keys), without the last line that says how many there are",
                self.number
            )));
            return Ok(false);
        }
        match Trailer::of(line.trim_ascii_end()) {
            None => {
                self.crc = crc32c::crc32c_append(self.crc, line);
                self.number = number;
                let end = line.trim_ascii_end().len();
                line.truncate(end);
                Ok(true)
            }
            Some(trailer) => {
                self.ended = Some(self.compare(trailer)?);
                Ok(false)
            }
        }
    }

    /// How the file ended; known when [`Self::next`] has said that there are no more lines.
    pub fn ended(&self) -> Option<&Ended> {
        self.ended.as_ref()
    }

    /// Compares the trailer with what was read.
    fn compare(&mut self, trailer: Result<Trailer, String>) -> Result<Ended, String> {
        let End { lines, crc32c, vectors_crc32c } = match trailer {
            Ok(trailer) => trailer.end,
            Err(error) => return Ok(Ended::Broken(format!("line {}: {error}", self.number + 1))),
        };
        let (read, crc) = (self.number - 1, hex(self.crc));
        let mut rest = Vec::new();
        let more =
            read_line(&mut self.from, &mut rest).map_err(|error| format!("behind the last line: {error}"))?;
        Ok(match () {
            () if lines != read => Ended::Broken(format!(
                "the last line says that {lines} lines are before it behind the header, and {read} were found"
            )),
            () if crc32c != crc => Ended::Broken(format!(
                "the file was changed or damaged: its checksum is {crc}, and the last line says {crc32c}"
            )),
            () if more > 0 => Ended::Broken(format!(
                "more follows behind line {}, which is to be the last",
                self.number + 1
            )),
            () => Ended::Whole { vectors_crc32c },
        })
    }
}

/// Reads up to and including the next line feed into `line`, which is cleared first; how many bytes there were.
fn read_line(from: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<usize> {
    line.clear();
    let read = from.take(LINE_BYTES_MAX as u64 + 1).read_until(b'\n', line)?;
    match read > LINE_BYTES_MAX {
        true => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("it is longer than {} MiB", LINE_BYTES_MAX >> 20),
        )),
        false => Ok(read),
    }
}

#[cfg(test)]
mod tests {
    use super::super::header::Kind;
    use super::*;

    /// A file of three points.
    fn file() -> Vec<u8> {
        let mut header = Header::new(Kind::Keys, 1);
        header.prefix_base64 = "YQ==".into();
        let mut bytes = serde_json::to_vec(&header).unwrap();
        bytes.extend_from_slice(b"\n{\"key\":\"a\"}\n{\"key\":\"b\"}\n{\"key\":\"c\"}\n");
        let end = End { lines: 3, crc32c: hex(crc32c::crc32c(&bytes)), vectors_crc32c: None };
        bytes.extend(serde_json::to_vec(&Trailer { end }).unwrap());
        bytes.push(b'\n');
        bytes
    }

    fn read(bytes: &[u8]) -> Result<(Vec<String>, Ended), String> {
        let (_, mut reader) = LineReader::open(bytes)?;
        let (mut lines, mut line) = (Vec::new(), Vec::new());
        while reader.next(&mut line)? {
            lines.push(String::from_utf8(line.clone()).unwrap());
        }
        Ok((lines, reader.ended().unwrap().clone()))
    }

    #[test]
    fn a_file_cut_at_any_byte_is_noticed() {
        let bytes = file();
        let (lines, ended) = read(&bytes).unwrap();
        assert_eq!(lines, ["{\"key\":\"a\"}", "{\"key\":\"b\"}", "{\"key\":\"c\"}"]);
        assert_eq!(ended, Ended::Whole { vectors_crc32c: None });
        // The last line feed may be missing.
        assert_eq!(read(&bytes[..bytes.len() - 1]).unwrap().1, ended);
        let header = bytes.iter().position(|byte| *byte == b'\n').unwrap();
        for cut in 0..bytes.len() - 1 {
            match read(&bytes[..cut]) {
                Err(error) => assert!(cut < header && error.contains("line 1"), "{cut}: {error}"),
                Ok((found, Ended::Broken(reason))) => {
                    assert!(reason.contains("cut short") || reason.contains("damaged"), "{cut}: {reason}");
                    // All lines but the last are lines of the file.
                    let whole = found.len().saturating_sub(1);
                    assert_eq!(found[..whole], lines[..whole], "{cut}");
                }
                Ok(whole) => panic!("{cut}: {whole:?}"),
            }
        }
    }

    #[test]
    fn a_changed_file_is_noticed() {
        let text = String::from_utf8(file()).unwrap();
        for (from, to, part) in [
            ("\"b\"", "\"B\"", "checksum"),
            ("{\"key\":\"b\"}\n", "", "2 were found"),
            ("\"lines\":3", "\"lines\":4", "4 lines"),
            ("\"lines\":3", "\"lines\":x", "the last line is damaged"),
        ] {
            let Ended::Broken(reason) = read(text.replace(from, to).as_bytes()).unwrap().1 else {
                panic!("{from}")
            };
            assert!(reason.contains(part), "{reason}");
        }
        let Ended::Broken(reason) = read((text + "{}\n").as_bytes()).unwrap().1 else { panic!() };
        assert!(reason.contains("more follows"), "{reason}");
    }
}
