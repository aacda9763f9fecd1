//! Figures of a collection, and what memory it takes.

/// Counters and gauges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Ids present (expired but unswept ones included).
    pub live: u64,
    /// Of these, the ones that have expired.
    pub expired: u64,
    /// Dead slots not yet reclaimed.
    pub tombstoned: u64,
    /// Live slots waiting in the tail.
    pub tail: u64,
    /// Slots ever committed (high-water mark).
    pub slots: u64,
    /// Points with a sparse vector that have not expired.
    pub sparse_vectors: u64,
    /// Committed bytes: vectors, edges, metadata, id map, rows, payload index, sparse and text lists.
    pub bytes: u64,
    /// Candidates a filter refused, since the collection was opened.
    pub filter_rejects: u64,
    /// Searches that walked the graph behind a gate of any sort.
    pub filter_gates: u64,
    /// Of these, behind the complement of a range.
    pub filter_complement_gates: u64,
    /// And behind a column of numbers.
    pub filter_column_gates: u64,
    /// Times that the columns were dropped to make room for a point.
    pub filter_column_drops: u64,
    /// Distances computed by searches, since the collection was opened.
    pub distances: u64,
}

impl Stats {
    /// Points that have not expired, as the owner last looked at the clock.
    pub fn points(&self) -> u64 {
        self.live.saturating_sub(self.expired)
    }

    /// Adds the memory and the work of the index of tokens of a multi-vector collection. Tokens do not count as points of the collection.
    pub fn add_index(&mut self, index: &Stats) {
        self.bytes += index.bytes;
        self.distances += index.distances;
    }

    /// How many of these are in the index. Expired points count for nothing here either, as if all of them were in the index.
    pub fn indexed(&self) -> u64 {
        self.points().saturating_sub(self.tail)
    }
}

/// Committed bytes by part; their sum is [`Stats::bytes`] but for what changes between two looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Vectors, edges or cells, and what only the owner has.
    pub graph: u64,
    /// Codes of the vectors: int8 ones that walks go over, or went over until they were given up, and those of a quantizer.
    pub codes: u64,
    /// A line of facts per slot.
    pub slots: u64,
    /// Payload rows, replaced ones that wait for readers included.
    pub rows: u64,
    /// From id to slot.
    pub ids: u64,
    /// Points not in the graph yet.
    pub tail: u64,
    /// From value to slots, with columns.
    pub payload_index: u64,
    /// Inverted lists of sparse vectors and of text.
    pub lanes: u64,
    /// Of a persistent collection, bytes that lie in files and not in the sum: vectors,
    pub file_vectors: u64,
    /// and what is made anew with each start: codes, edges, lines of facts.
    pub file_index: u64,
}

impl Usage {
    /// Adds the memory of the index of tokens of a multi-vector collection, part by part.
    pub fn add_index(&mut self, index: &Usage) {
        for (part, of_index) in [
            (&mut self.graph, index.graph),
            (&mut self.codes, index.codes),
            (&mut self.slots, index.slots),
            (&mut self.rows, index.rows),
            (&mut self.ids, index.ids),
            (&mut self.tail, index.tail),
            (&mut self.file_vectors, index.file_vectors),
            (&mut self.file_index, index.file_index),
        ] {
            *part += of_index;
        }
    }
}
