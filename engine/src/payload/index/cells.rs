//! Cells of the globe: 4096 rows of latitude by 8192 columns of longitude (geohash length 5), numbered row by row, so that a
//! row's part of a box is one range of keys.

/// Rows from pole to pole.
const ROWS: u32 = 1 << 12;
/// Columns around.
const COLUMNS: u32 = 1 << 13;
/// The cell of everything that is not on the globe.
pub(crate) const OUTSIDE: u32 = ROWS * COLUMNS;
/// Most rows of a box that is looked up by cells, 11 degrees: each is one search in the dictionary.
const ROWS_MAX: u32 = 256;

/// The cell of a point. Growing in both coordinates.
pub(crate) fn cell(lat: f64, lon: f64) -> u32 {
    if !((-90.0..=90.0).contains(&lat) && (-180.0..=180.0).contains(&lon)) {
        return OUTSIDE;
    }
    row(lat) * COLUMNS + column(lon)
}

fn row(lat: f64) -> u32 {
    (((lat + 90.0) / 180.0 * f64::from(ROWS)) as u32).min(ROWS - 1)
}

fn column(lon: f64) -> u32 {
    (((lon + 180.0) / 360.0 * f64::from(COLUMNS)) as u32).min(COLUMNS - 1)
}

/// First and last cell of each row of a box in degrees, which is cut at the edges of the map; `None` when the rows are too
/// many.
pub(crate) fn rows_of(
    south: f64,
    west: f64,
    north: f64,
    east: f64,
) -> Option<impl Iterator<Item = (u32, u32)>> {
    let (first, last) = (row(south.clamp(-90.0, 90.0)), row(north.clamp(-90.0, 90.0)));
    let (west, east) = (column(west.clamp(-180.0, 180.0)), column(east.clamp(-180.0, 180.0)));
    (last - first < ROWS_MAX)
        .then(|| (first..=last).map(move |row| (row * COLUMNS + west, row * COLUMNS + east)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn corners_and_what_is_off_the_map() {
        for ((lat, lon), expected) in [
            ((-90.0, -180.0), 0),
            ((90.0, 180.0), OUTSIDE - 1),
            ((0.0, 0.0), ROWS / 2 * COLUMNS + COLUMNS / 2),
            ((90.1, 0.0), OUTSIDE),
            ((0.0, f64::NAN), OUTSIDE),
        ] {
            assert_eq!(cell(lat, lon), expected, "{lat} {lon}");
        }
    }

    #[test]
    fn a_box_holds_the_cells_of_its_points() {
        let rows: Vec<(u32, u32)> = rows_of(10.0, 20.0, 12.0, 21.5).unwrap().collect();
        for step in 0..=20 {
            for side in 0..=20 {
                let found = cell(10.0 + f64::from(step) / 10.0, 20.0 + f64::from(side) * 1.5 / 20.0);
                assert!(rows.iter().any(|&(west, east)| (west..=east).contains(&found)));
            }
        }
        assert!(rows_of(-80.0, 0.0, 80.0, 1.0).is_none());
    }
}
