//! The flags of `nigh export` and `nigh import`.
use crate::bench::client::{ALPN, Target};
use crate::flags::parse_bool;
use crate::tls::connector::Connector;
use crate::tls::explain;
use crate::tls::flags::TlsFlags;
use clap::{ArgAction, Args, Parser, ValueEnum};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// The server over HTTP, where no flag names it.
const URL_DEFAULT: &str = "127.0.0.1:8080";
/// The server over the binary protocol, where no flag names it.
const ADDRESS_DEFAULT: &str = "127.0.0.1:7000";

/// Where the server is.
#[derive(Clone, Debug, Default, Args)]
pub struct ServerFlags {
    /// Server of a collection, http://host:port or https://host:port. Without this flag it is http://127.0.0.1:8080.
    #[arg(long, help_heading = "Server")]
    pub url: Option<String>,
    /// Server of keys, host:port of its binary protocol. Without this flag it is 127.0.0.1:7000.
    #[arg(long, help_heading = "Server")]
    pub address: Option<String>,
    /// API key, for a server that asks for one; without this flag it is taken from the variable NIGH_API_KEY, which does
    /// not show in the list of processes.
    #[arg(long, value_name = "SECRET", help_heading = "Server")]
    pub api_key: Option<String>,
    /// How often in a row a request is sent again if the connection fails or the server is busy (503, or 429 because writes come too fast).
    #[arg(long, default_value_t = 8, help_heading = "Server")]
    pub retries: u32,
    /// The flags of TLS.
    #[command(flatten)]
    pub tls: TlsFlags,
}

impl ServerFlags {
    /// The API key of the flag, or else that of the environment variable, whose value is `variable`.
    fn key(&self, variable: Option<String>) -> String {
        self.api_key.clone().or(variable).unwrap_or_default()
    }

    /// The server over HTTP, over TLS if its URL or a flag says so.
    ///
    /// # Errors
    /// A sentence that names the flag.
    pub fn http(&self, variable: Option<String>) -> Result<Target, String> {
        if self.address.is_some() {
            return Err(
                "-address names the server of keys; a collection is read and written over HTTP: -url".into(),
            );
        }
        let target = match &self.url {
            Some(url) if url.starts_with("https://") => {
                Target::parse_secure(url, self.tls.connector_of_https(ALPN)?)
            }
            Some(url) => {
                self.tls.refuse_http()?;
                Target::parse(url)
            }
            None => match self.tls.connector(ALPN)? {
                Some(tls) => Target::parse_secure(&format!("https://{URL_DEFAULT}"), tls),
                None => Target::parse(&format!("http://{URL_DEFAULT}")),
            },
        };
        target?.with_key(&self.key(variable))
    }

    /// The server over the binary protocol.
    ///
    /// # Errors
    /// A sentence that names the flag.
    pub fn tcp(&self, variable: Option<String>) -> Result<TcpTarget, String> {
        if self.url.is_some() {
            return Err("-url names the server of collections; keys are read and written over the binary protocol: -address".into());
        }
        let address = self.address.clone().unwrap_or_else(|| ADDRESS_DEFAULT.to_owned());
        Ok(TcpTarget { address, token: self.key(variable), tls: self.tls.connector(&[])? })
    }
}

/// A server of the binary protocol.
pub struct TcpTarget {
    /// `host:port`.
    pub address: String,
    /// The API key; empty if there is none.
    pub token: String,
    /// What makes connections speak TLS; `None` for plain text.
    pub tls: Option<Arc<Connector>>,
}

/// The sentence about a connection that failed.
pub fn not_connected(target: &Target, error: &io::Error) -> String {
    let url = target.url();
    match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            format!("{url}: {error}: no server listens there; -url names another")
        }
        _ => explain::not_connected(&url, error, "-url"),
    }
}

/// How an export is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Each line is a JSON object.
    Jsonl,
    /// Vectors are a NumPy array of f32, and everything else is in JSON lines beside it.
    Npy,
    /// Vectors are rows with their length in front (little-endian), and everything else is in JSON lines beside it.
    Fvecs,
    /// Columns of Parquet. The export writes JSON lines to FILE.partial, and converts them at the end.
    Parquet,
}

impl Format {
    /// Its name, as the flag and the files have it.
    pub fn name(self) -> &'static str {
        match self {
            Format::Jsonl => "jsonl",
            Format::Npy => "npy",
            Format::Fvecs => "fvecs",
            Format::Parquet => "parquet",
        }
    }

    /// Whether vectors go into a file of their own.
    pub fn has_vector_file(self) -> bool {
        matches!(self, Format::Npy | Format::Fvecs)
    }
}

/// Writes a collection, or the keys, of a running server to a file that `nigh import` reads.
///
/// Points are read page by page while the server goes on serving. A point that exists during the whole export is in the file once, as it
/// was when its page was read. Until the export is complete, the file is called FILE.partial, and -resume continues it.
#[derive(Clone, Debug, Parser)]
#[command(name = "nigh export", args_override_self = true)]
pub struct ExportOptions {
    /// Where the server is.
    #[command(flatten)]
    pub server: ServerFlags,

    /// Collection of any family, or an alias of one.
    #[arg(long, value_name = "NAME", help_heading = "What")]
    pub collection: Option<String>,
    /// Export the keys and values; the server needs -kv-query.
    #[arg(long, value_parser = parse_bool, action = ArgAction::Set, default_value = "false", help_heading = "What")]
    pub keys: bool,
    /// Only keys that begin with this.
    #[arg(long, default_value = "", help_heading = "What")]
    pub prefix: String,
    /// Read the keys that have the prefix of this index. Without an index the server looks at all keys for each page.
    #[arg(long, value_name = "NAME", default_value = "", help_heading = "What")]
    pub index: String,
    /// Export a collection of named spaces or a multi-vector collection although the server does not return its sparse vectors. They are
    /// then missing from the file.
    #[arg(long, value_parser = parse_bool, action = ArgAction::Set, default_value = "false", help_heading = "What")]
    pub without_sparse: bool,

    /// File to write; - is the standard output.
    #[arg(long, alias = "output", value_name = "FILE", help_heading = "File")]
    pub o: Option<String>,
    /// Format of the file; npy and fvecs need a dense collection, and put everything but the vectors into FILE.jsonl.
    #[arg(long, value_enum, default_value = "jsonl", help_heading = "File")]
    pub format: Format,
    /// Continue an export that was interrupted.
    #[arg(long, value_parser = parse_bool, action = ArgAction::Set, default_value = "false", help_heading = "File")]
    pub resume: bool,
    /// Replace an existing file of that name, and what an interrupted export has left.
    #[arg(long, value_parser = parse_bool, action = ArgAction::Set, default_value = "false", help_heading = "File")]
    pub overwrite: bool,
}

/// What to do with a point or key that exists already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnConflict {
    /// Keep the existing one.
    Skip,
    /// Replace it by the one in the file.
    Replace,
    /// End the import at it.
    Fail,
}

/// The columns of a file of Parquet that another program wrote.
#[derive(Clone, Debug, Default, Args)]
pub struct ColumnFlags {
    /// Column with the ids, in a file of Parquet that another program wrote.
    #[arg(long, value_name = "NAME", default_value = "id", help_heading = "Parquet of other programs")]
    pub id_column: String,
    /// Column with the vectors. Without this flag it is vector, else embedding, else tokens. For named spaces it is a list SPACE=COLUMN,...;
    /// without it each space takes the column of its name. All other columns become payload keys.
    #[arg(long, value_name = "NAME", default_value = "", help_heading = "Parquet of other programs")]
    pub vector_column: String,
}

impl ColumnFlags {
    /// The columns of vectors that the flag names, each with its space if one is given.
    ///
    /// # Errors
    /// A sentence that names the flag.
    #[cfg(feature = "parquet")]
    pub fn vectors(&self) -> Result<Vec<(Option<String>, String)>, String> {
        let words = self.vector_column.split(',').filter(|word| !word.is_empty());
        words
            .map(|word| match word.split_once('=') {
                None => Ok((None, word.to_owned())),
                Some((space, column)) if !space.is_empty() && !column.is_empty() => {
                    Ok((Some(space.to_owned()), column.to_owned()))
                }
                Some(_) => {
                    Err(format!("-vector-column has {word:?}, and SPACE=COLUMN or COLUMN is possible"))
                }
            })
            .collect()
    }
}

/// Writes the points or keys of a file of `nigh export` to a running server: `nigh import [flags] FILE`.
///
/// FILE is a file of JSON lines, a .parquet file, or a .npy or .fvecs file with FILE.jsonl beside it; - reads JSON lines from the standard input. A
/// collection that does not exist is created with the configuration in the file. The exit code is 1 if anything was refused, or the file is
/// not complete.
#[derive(Clone, Debug, Parser)]
#[command(name = "nigh import", args_override_self = true)]
pub struct ImportOptions {
    /// Where the server is.
    #[command(flatten)]
    pub server: ServerFlags,

    /// Collection to write to; without this flag it is the one that the file names.
    #[arg(long, value_name = "NAME", help_heading = "Where")]
    pub into: Option<String>,
    /// What to do with a point or key that exists already.
    #[arg(long, value_enum, default_value = "fail", help_heading = "Where")]
    pub on_conflict: OnConflict,
    /// Write into an existing collection even if its configuration is not the one in the file. Points that do not fit are refused.
    #[arg(long, value_parser = parse_bool, action = ArgAction::Set, default_value = "false", help_heading = "Where")]
    pub any_config: bool,
    /// Define the key indexes that the file contains and the server lacks.
    #[arg(long, value_parser = parse_bool, action = ArgAction::Set, default_value = "true", help_heading = "Where")]
    pub indexes: bool,

    /// Columns of a file of Parquet that another program wrote.
    #[command(flatten)]
    pub columns: ColumnFlags,

    /// Points or keys per request, at most 10,000.
    #[arg(long, default_value_t = 500, help_heading = "Load")]
    pub batch: usize,
    /// Connections to the server of a collection, at most 64; each has one request at a time. Keys use one connection.
    #[arg(long, default_value_t = 4, help_heading = "Load")]
    pub connections: usize,

    /// Continue an import that was interrupted. FILE.import records how far it has come, and is removed at the end.
    #[arg(long, value_parser = parse_bool, action = ArgAction::Set, default_value = "false", help_heading = "Going on")]
    pub resume: bool,
    /// Leave out this many points or keys at the beginning of the file.
    #[arg(long, default_value_t = 0, help_heading = "Going on")]
    pub skip: u64,
    /// Write what was refused to this file, one JSON object per line with the reason.
    #[arg(long, value_name = "FILE", help_heading = "Going on")]
    pub rejects: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn export(words: &[&str]) -> ExportOptions {
        ExportOptions::parse_from([&["nigh export"], words].concat())
    }

    #[test]
    fn a_server_is_named_by_the_flag_of_its_protocol() {
        let options = export(&[]);
        assert_eq!(options.server.http(None).unwrap().url(), "http://127.0.0.1:8080");
        let tcp = options.server.tcp(Some("v".into())).unwrap();
        assert_eq!((tcp.address.as_str(), tcp.token.as_str()), ("127.0.0.1:7000", "v"));
        let wrong = export(&["--url", "http://h:1", "--api-key", "f"]);
        assert!(wrong.server.tcp(None).err().unwrap().contains("-address"));
        assert_eq!(wrong.server.http(Some("v".into())).unwrap().api_key.as_deref(), Some("f"));
        assert!(export(&["--address", "h:1"]).server.http(None).err().unwrap().contains("-url"));
        assert!(export(&["--url", "http://h:1", "--tls=true"]).server.http(None).is_err());
    }
}
