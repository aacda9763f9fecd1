//! How errors of operations name points.

use crate::op::ApiError;
use nigh_engine::point_id::SentId;

impl ApiError {
    /// The error of an operation on one point, in which the number of the point is replaced by its string, if it has one.
    pub fn naming(self, id: &SentId) -> ApiError {
        match id.text() {
            Some(_) => {
                let (from, to) = (format!("id {}", id.number()), format!("id {id}"));
                ApiError { message: self.message.replace(&from, &to), ..self }
            }
            None => self,
        }
    }
}

/// How an error refers to the element at `index` of the list `list` of a batch.
pub fn place_of(list: &str, index: usize, id: Option<&SentId>) -> String {
    match id {
        Some(id) => format!("{list}[{index}] with id {id}"),
        None => format!("{list}[{index}] without an id"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_what_was_sent() {
        let id = SentId::string("a \"b\"").expect("an id");
        let error = ApiError::invalid(format!("point not found: id {}", id.number()));
        assert_eq!(error.naming(&id).message, "point not found: id \"a \\\"b\\\"\"");
        assert_eq!(ApiError::invalid("id 7").naming(&SentId::integer(7)).message, "id 7");
    }
}
