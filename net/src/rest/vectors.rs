//! The vectors of a point as JSON, under the key of its family.

use crate::door::Shape;
use crate::wire::value::write_json;

/// Appends `"vector":[…]`, `"vectors":{"name":[…],…}` of a collection of named spaces, or `"tokens":[[…],…]` of a multi-vector collection; with
/// `null` as the value if `vectors`, each with its number, are not asked for, or if a point has no vector in a collection of one.
pub fn write_vectors<V: AsRef<[(usize, Vec<f32>)]>>(out: &mut Vec<u8>, vectors: Option<V>, shape: &Shape) {
    out.extend_from_slice(match shape {
        Shape::One => b"\"vector\":",
        Shape::Spaces(_) => b"\"vectors\":",
        Shape::Tokens => b"\"tokens\":",
    });
    let Some(vectors) = vectors else {
        out.extend_from_slice(b"null");
        return;
    };
    let vectors = vectors.as_ref();
    match shape {
        Shape::One => match vectors.first().filter(|(_, vector)| !vector.is_empty()) {
            Some((_, vector)) => write_json(out, vector),
            None => out.extend_from_slice(b"null"),
        },
        Shape::Spaces(spaces) => {
            out.push(b'{');
            for (index, (name, vector)) in spaces.dense_of(vectors).enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write_json(out, name);
                out.push(b':');
                write_json(out, vector);
            }
            out.push(b'}');
        }
        Shape::Tokens => {
            out.push(b'[');
            for (index, (_, vector)) in vectors.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write_json(out, vector);
            }
            out.push(b']');
        }
    }
}
