//! Areas on the globe.

use super::allowance::Allowance;

/// Mean radius of the earth in metres, fixed by the interface.
const EARTH_RADIUS_M: f64 = 6_371_000.0;

/// An area that a geo point is in or not. Degrees throughout.
#[derive(Debug)]
pub(crate) enum Area {
    /// Within a great-circle distance of a centre.
    Circle(Circle),
    /// Between two parallels and two meridians, edges included.
    Box(BoundingBox),
    /// Inside a polygon.
    Polygon(Polygon),
}

impl Area {
    /// Whether the point lies inside, `None` of a polygon, which is walked around. Stored coordinates may be out of range; the formulas
    /// take them as they are.
    pub(super) fn contains(&self, lat: f64, lon: f64) -> Option<bool> {
        match self {
            Area::Circle(circle) => Some(circle.contains(lat, lon)),
            Area::Box(bounds) => Some(bounds.contains(lat, lon)),
            Area::Polygon(_) => None,
        }
    }
}

impl Area {
    /// South, west, north and east of a box that holds all of the area on the map, and whether points off the map may be inside
    /// too; `None` when the box would go around a pole or the antimeridian.
    pub(super) fn covering(&self) -> Option<([f64; 4], bool)> {
        let corners = |b: &BoundingBox| [b.min_lat, b.min_lon, b.max_lat, b.max_lon];
        match self {
            Area::Circle(circle) => circle.covering().map(|corners| (corners, true)),
            Area::Box(bounds) => Some((corners(bounds), false)),
            Area::Polygon(polygon) => Some((corners(&polygon.bounds), false)),
        }
    }
}

/// A circle by haversine distance.
#[derive(Debug)]
pub(crate) struct Circle {
    lat: f64,
    lon: f64,
    cos_lat: f64,
    radius_m: f64,
}

impl Circle {
    /// `radius_m` is finite and positive, the centre in range.
    pub(super) fn new(lat: f64, lon: f64, radius_m: f64) -> Self {
        Self { lat, lon, cos_lat: lat.to_radians().cos(), radius_m }
    }

    fn covering(&self) -> Option<[f64; 4]> {
        /// Degrees (a tenth of a metre) that rounding may be off by.
        const MARGIN: f64 = 1e-6;
        let angle = self.radius_m / EARTH_RADIUS_M;
        let tall = angle.to_degrees() + MARGIN;
        let (south, north) = (self.lat - tall, self.lat + tall);
        if angle > 1.0 || south < -90.0 || north > 90.0 {
            return None;
        }
        // Where the circle touches its outermost meridians.
        let wide = (angle.sin() / self.cos_lat).min(1.0).asin().to_degrees() + MARGIN;
        let (west, east) = (self.lon - wide, self.lon + wide);
        (west >= -180.0 && east <= 180.0).then_some([south, west, north, east])
    }

    fn contains(&self, lat: f64, lon: f64) -> bool {
        let half_sine = |degrees: f64| (degrees.to_radians() / 2.0).sin();
        let (north, east) = (half_sine(lat - self.lat), half_sine(lon - self.lon));
        let chord = north * north + self.cos_lat * lat.to_radians().cos() * east * east;
        // Rounding can lift antipodes above 1. NaN fails the comparison.
        2.0 * EARTH_RADIUS_M * chord.clamp(0.0, 1.0).sqrt().asin() <= self.radius_m
    }
}

/// A box that does not cross the antimeridian.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BoundingBox {
    pub(super) min_lat: f64,
    pub(super) min_lon: f64,
    pub(super) max_lat: f64,
    pub(super) max_lon: f64,
}

impl BoundingBox {
    fn contains(&self, lat: f64, lon: f64) -> bool {
        (self.min_lat..=self.max_lat).contains(&lat) && (self.min_lon..=self.max_lon).contains(&lon)
    }
}

/// A polygon by the even-odd rule on the plane of latitude and longitude, implicitly closed.
#[derive(Debug)]
pub(crate) struct Polygon {
    /// (latitude, longitude) of each vertex, at least three.
    vertices: Box<[(f64, f64)]>,
    /// Most points lie outside it, which saves the walk around the edges.
    bounds: BoundingBox,
}

impl Polygon {
    /// From lat, lon, lat, lon...
    pub(super) fn new(coordinates: &[f64]) -> Self {
        let vertices: Box<[(f64, f64)]> =
            coordinates.as_chunks().0.iter().map(|&[lat, lon]| (lat, lon)).collect();
        let mut bounds = BoundingBox {
            min_lat: f64::INFINITY,
            min_lon: f64::INFINITY,
            max_lat: f64::NEG_INFINITY,
            max_lon: f64::NEG_INFINITY,
        };
        for &(lat, lon) in &vertices {
            bounds.min_lat = bounds.min_lat.min(lat);
            bounds.min_lon = bounds.min_lon.min(lon);
            bounds.max_lat = bounds.max_lat.max(lat);
            bounds.max_lon = bounds.max_lon.max(lon);
        }
        Self { vertices, bounds }
    }

    /// Begins to ask whether it contains a point.
    pub(super) fn walk(&self, lat: f64, lon: f64) -> EdgeWalk<'_> {
        let next = if self.bounds.contains(lat, lon) { 0 } else { self.vertices.len() };
        EdgeWalk { polygon: self, lat, lon, next, inside: false }
    }
}

/// Vertices looked at before the allowance is, and what each costs in nanoseconds: one edge in some crosses the latitude, which is
/// foreseen by no CPU.
const EDGES_AT_ONCE: usize = 256;
const EDGE_NS: u64 = 4;

/// A walk around the edges of a polygon: whether a ray from the point towards the east crosses an odd number of them.
#[derive(Debug)]
pub(super) struct EdgeWalk<'a> {
    polygon: &'a Polygon,
    lat: f64,
    lon: f64,
    /// The edge that ends at this vertex comes next.
    next: usize,
    inside: bool,
}

impl EdgeWalk<'_> {
    /// Whether the point is inside, `None` when the allowance is used up before.
    pub(super) fn go_on(&mut self, allowance: &Allowance) -> Option<bool> {
        let (vertices, lat, lon) = (&self.polygon.vertices, self.lat, self.lon);
        while self.next < vertices.len() {
            if allowance.is_spent() {
                return None;
            }
            let end = vertices.len().min(self.next + EDGES_AT_ONCE);
            let mut previous = vertices[self.next.checked_sub(1).unwrap_or(vertices.len() - 1)];
            for &vertex in &vertices[self.next..end] {
                let ((lat_a, lon_a), (lat_b, lon_b)) = (previous, vertex);
                if (lat_a > lat) != (lat_b > lat) {
                    let crossing = lon_a + (lon_b - lon_a) * (lat - lat_a) / (lat_b - lat_a);
                    self.inside ^= lon < crossing;
                }
                previous = vertex;
            }
            allowance.spend(EDGE_NS * (end - self.next) as u64);
            self.next = end;
        }
        Some(self.inside)
    }
}
