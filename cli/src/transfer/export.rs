//! `nigh export` of a collection.
use super::columnar;
use super::header::{Beside, Family, Header, Kind};
use super::options::{ExportOptions, Format};
use super::outfile::{Note, Output, Wanted};
use super::point::Stored;
use super::progress::{Progress, grouped, now_ms};
use super::remote::Remote;
use super::source::{Collection, Page, Sizes, read_pages};
use super::vector_file::VectorWriter;
use crate::bench::client::Target;
use serde::Deserialize;
use std::fs::File;

/// What every export of a collection leaves out.
const KEY_DEADLINES: &str = "when single keys of a payload expire";
/// What an import does not set.
const VERSIONS: &str = "versions are in the file, and an import does not set them";

/// Exports the collection `name` and returns a summary.
///
/// # Errors
/// A sentence.
pub fn run(options: &ExportOptions, name: &str, target: &Target) -> Result<String, String> {
    let path = options.o.as_deref().unwrap_or_default();
    let wanted = Wanted {
        path,
        has_vectors: options.format.has_vector_file(),
        convert: (options.format == Format::Parquet).then_some(columnar::convert),
        resume: options.resume,
        overwrite: options.overwrite,
        what: format!("the collection {name:?} of {} as {}", target.url(), options.format.name()),
    };
    let note = wanted.check()?;
    let mut remote = Remote::new(target.clone(), options.server.retries);
    let collection = Collection::find(&mut remote, name)?;
    let sizes = collection.sizes(&mut remote)?;
    let header = header(options, name, &collection, sizes)?;
    if options.format == Format::Parquet {
        columnar::check_header(&header)?;
    }
    let dim = header.vectors.as_ref().map_or(0, |vectors| vectors.dim);
    let is_begun_anew = note.is_none();
    let format = options.format;
    let mut output = match note {
        None => {
            let line = serde_json::to_vec(&header).map_err(|error| error.to_string())?;
            Output::begin(&wanted, &line, |file| VectorWriter::begin(file, format, dim))?
        }
        Some(note) => Output::go_on(&wanted, note, |file: File, note: &Note| {
            VectorWriter::go_on(file, format, dim, note.lines, note.vectors_crc32c)
        })?,
    };
    let before = output.lines();
    let mut progress = Progress::begin("nigh export", "points", before, sizes.map(|sizes| sizes.points));
    let cursor = output.cursor().to_owned();
    // An export may have been interrupted between its last page and its end.
    if is_begun_anew || !cursor.is_empty() || before == 0 {
        let read = read_pages(target, options.server.retries, &collection, cursor, |page| {
            write_page(&mut output, &page, format.has_vector_file())?;
            progress.reached(output.lines());
            output.page_done(&page.next)
        });
        if let Err(error) = read {
            output.keep()?;
            let hint = if path == "-" { "" } else { "; -resume goes on from there" };
            return Err(format!("{error}: {} points were written{hint}", grouped(output.lines())));
        }
    }
    let lines = output.lines();
    let bytes = output.finish()?;
    let mut summary = format!(
        "exported {} points of {name:?} ({}): {}, {:.1} MB\n",
        grouped(lines),
        collection.family.name(),
        progress.end(),
        bytes as f64 / 1e6
    );
    for reason in header.not_kept {
        summary += &format!("not in the file: {reason}\n");
    }
    Ok(format!("{summary}note: {VERSIONS}\n"))
}

/// Makes the header, if the collection can be exported as the options ask.
fn header(
    options: &ExportOptions,
    name: &str,
    collection: &Collection,
    sizes: Option<Sizes>,
) -> Result<Header, String> {
    let shape = collection.shape();
    let mut header = Header::new(Kind::Collection, now_ms());
    header.collection = Some(name.to_owned());
    header.family = Some(collection.family);
    header.config = collection.config.clone();
    header.not_kept.push(KEY_DEADLINES.into());
    // The server returns sparse vectors only for points of dense collections. If it does not count them, there may be some.
    let may_have_sparse = match sizes {
        Some(sizes) => sizes.sparse_vectors > 0,
        None => collection.family == Family::Multivector || shape.has_sparse_spaces(),
    };
    if collection.family != Family::Dense && may_have_sparse {
        let have = match sizes {
            Some(sizes) => format!("{} sparse vectors, which", grouped(sizes.sparse_vectors)),
            None => "perhaps sparse vectors, which".into(),
        };
        if !options.without_sparse {
            return Err(format!(
                "the collection {name:?} has {have} the server does not return for the family {}; \
                 -without-sparse exports it without them",
                collection.family.name()
            ));
        }
        header.not_kept.push("sparse vectors".into());
    }
    let flag =
        |key: &str| collection.config.as_ref().and_then(|config| config.get(key)?.as_bool()) == Some(true);
    if flag("pq_drop_vecs") {
        header
            .not_kept
            .push("exact vectors: the collection keeps codes alone, and returns what they stand for".into());
    }
    if options.format.has_vector_file() {
        let dim = shape.dim.filter(|_| collection.family == Family::Dense).ok_or_else(|| {
            format!(
                "-format {} is for dense collections, and {name:?} is of the family {}",
                options.format.name(),
                collection.family.name()
            )
        })?;
        header.vectors = Some(Beside { format: options.format.name().into(), dim });
    }
    Ok(header)
}

/// Writes the points of a page. Points that were deleted since their ids were read are missing from it.
fn write_page(output: &mut Output, page: &Page, without_vector: bool) -> Result<(), String> {
    #[derive(Deserialize)]
    struct Answer<'a> {
        #[serde(borrow)]
        points: Vec<Stored<'a>>,
    }
    let now = now_ms();
    let mut line = Vec::new();
    for answer in &page.answers {
        let answer: Answer<'_> =
            serde_json::from_slice(answer).map_err(|error| format!("the answer has no points: {error}"))?;
        for point in &answer.points {
            line.clear();
            point.write_line(now, without_vector, &mut line);
            let vector: Option<Vec<f32>> = match (without_vector, point.vector) {
                (true, Some(vector)) => Some(
                    serde_json::from_str(vector.get())
                        .map_err(|error| format!("the vector of the point {}: {error}", point.id.get()))?,
                ),
                (true, None) => return Err(format!("the point {} has no vector", point.id.get())),
                (false, _) => None,
            };
            output.line(&line, vector.as_deref())?;
        }
    }
    Ok(())
}
