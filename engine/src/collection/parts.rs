//! The vectors of one point, as a write brings them.

/// What a write says of the vector of a point in one space.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Part<'a> {
    /// The point gets this one: `dim` floats, unprepared.
    Given(&'a [f32]),
    /// The point keeps the one that it has, if it has one.
    Kept,
    /// The point has none from now on.
    Absent,
}

/// The vectors of one point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Parts<'a> {
    /// The vector of a point in a collection of one space, where every point has one.
    Only(&'a [f32]),
    /// What a write says of each space of a collection of named spaces, in the order of the spaces.
    Each(&'a [Part<'a>]),
}

impl<'a> Parts<'a> {
    /// What is said of one space.
    pub fn of(&self, space: usize) -> Part<'a> {
        match self {
            Parts::Only(vector) if space == 0 => Part::Given(vector),
            Parts::Only(_) => Part::Absent,
            Parts::Each(parts) => parts.get(space).copied().unwrap_or(Part::Absent),
        }
    }
}
