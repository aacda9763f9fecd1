//! The frames of a connection as they arrive, before the parser has seen them: whether the client is in the middle of one, and how many it
//! sends that do nothing.
//!
//! The parser bounds what frames hold. It answers pings and settings one by one and reads on, so that a client could keep a core busy with
//! these for ever; and it waits for the rest of a frame as long as the connection is open.

use crate::limits::{
    GRPC_IDLE_FRAMES_PER_SECOND, GRPC_IDLE_FRAMES_PER_USEFUL, GRPC_SENT_BYTES_PER_IDLE_FRAME,
};

/// What every connection begins with.
const PREFACE_BYTES: usize = 24;
const HEAD_BYTES: usize = 9;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;

/// See the module. It knows lengths and kinds alone: what is malformed is for the parser to say.
pub struct Frames {
    preface_left: usize,
    head: [u8; HEAD_BYTES],
    head_len: usize,
    payload_left: usize,
    /// The frame under way carries data.
    in_data: bool,
    /// The headers of a call are not complete.
    in_headers: bool,
    /// No frame is complete yet.
    is_first: bool,
    /// Frames of this second that do nothing.
    idle: u64,
    /// How many such frames are earned: in this second, and in the one before, whose answers the client may take now.
    earned: [u64; 2],
    /// Bytes sent that have earned nothing yet.
    sent: u64,
    /// Frames that begin a call, so far.
    heads: u64,
    /// In this second there was a moment in which nothing was unfinished.
    was_finished: bool,
}

impl Frames {
    /// Of a new connection.
    pub fn new() -> Frames {
        Frames {
            preface_left: PREFACE_BYTES,
            head: [0; HEAD_BYTES],
            head_len: 0,
            payload_left: 0,
            in_data: false,
            in_headers: false,
            is_first: true,
            idle: 0,
            earned: [0; 2],
            sent: 0,
            heads: 0,
            was_finished: false,
        }
    }

    /// Bytes came.
    pub fn received(&mut self, mut bytes: &[u8]) {
        self.was_finished |= !self.is_unfinished();
        let taken = self.preface_left.min(bytes.len());
        self.preface_left -= taken;
        bytes = &bytes[taken..];
        while !bytes.is_empty() {
            if self.payload_left > 0 {
                let taken = self.payload_left.min(bytes.len());
                self.payload_left -= taken;
                bytes = &bytes[taken..];
            } else {
                let taken = (HEAD_BYTES - self.head_len).min(bytes.len());
                self.head[self.head_len..self.head_len + taken].copy_from_slice(&bytes[..taken]);
                self.head_len += taken;
                bytes = &bytes[taken..];
                if self.head_len < HEAD_BYTES {
                    return;
                }
                self.begin();
            }
            if self.payload_left == 0 && self.head_len == 0 {
                self.is_first = false;
            }
            self.was_finished |= !self.is_unfinished();
        }
    }

    /// The head of a frame is complete.
    fn begin(&mut self) {
        self.head_len = 0;
        let [a, b, c, kind, flags, ..] = self.head;
        self.payload_left = u32::from_be_bytes([0, a, b, c]) as usize;
        self.in_data = kind == DATA;
        if matches!(kind, HEADERS | CONTINUATION) {
            self.in_headers = flags & END_HEADERS == 0;
        }
        match kind {
            HEADERS => {
                self.heads += 1;
                self.earned[0] += GRPC_IDLE_FRAMES_PER_USEFUL;
            }
            DATA if self.payload_left > 0 => self.earned[0] += GRPC_IDLE_FRAMES_PER_USEFUL,
            _ => self.idle += 1,
        }
    }

    /// Bytes went to the client.
    pub fn sent(&mut self, bytes: usize) {
        self.sent += bytes as u64;
        self.earned[0] += self.sent / GRPC_SENT_BYTES_PER_IDLE_FRAME;
        self.sent %= GRPC_SENT_BYTES_PER_IDLE_FRAME;
    }

    /// Whether the client is to go on soon: it has sent a part of something that is short. Data may take longer, as calls allow.
    pub fn is_unfinished(&self) -> bool {
        let in_frame = self.payload_left > 0 && !self.in_data;
        self.preface_left > 0 || self.is_first || self.head_len > 0 || self.in_headers || in_frame
    }

    /// Whether too much of what came in this second does nothing.
    pub fn is_flood(&self) -> bool {
        self.idle > GRPC_IDLE_FRAMES_PER_SECOND + self.earned.iter().sum::<u64>()
    }

    /// Frames that begin a call, so far.
    pub fn heads(&self) -> u64 {
        self.heads
    }

    /// A second has passed. Returns whether the client was all that time in the middle of the same.
    pub fn next_second(&mut self) -> bool {
        self.idle = 0;
        self.earned = [0, self.earned[0]];
        !std::mem::replace(&mut self.was_finished, false) && self.is_unfinished()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, payload: usize) -> Vec<u8> {
        let len = (payload as u32).to_be_bytes();
        [&[len[1], len[2], len[3], kind, flags, 0, 0, 0, 1][..], &vec![7; payload]].concat()
    }

    /// Where the client is to go on soon, after each number of bytes.
    #[test]
    fn a_connection_cut_at_every_byte() {
        const SETTINGS: u8 = 4;
        let parts = [
            (vec![1; PREFACE_BYTES], true),
            (frame(SETTINGS, 0, 6), true),
            (frame(HEADERS, END_HEADERS, 20), true),
            (frame(DATA, 0, 30), false),
            (frame(HEADERS, 0, 3), true),
            (frame(CONTINUATION, 0, 3), true),
            (frame(CONTINUATION, END_HEADERS, 3), true),
            (frame(6, 0, 8), true),
        ];
        for piece in 1..40 {
            let mut frames = Frames::new();
            let all: Vec<u8> = parts.iter().flat_map(|(bytes, _)| bytes.clone()).collect();
            for (index, bytes) in all.chunks(piece).enumerate() {
                frames.received(bytes);
                let end = (index * piece + piece).min(all.len());
                let mut start = 0;
                let mut expected = false;
                for (number, (bytes, is_short)) in parts.iter().enumerate() {
                    let inside = end > start && end < start + bytes.len();
                    let in_head = number > 0 && inside && end < start + HEAD_BYTES;
                    // Between the preface and the end of the first frame, and between the parts of a head.
                    let at_seam = end == start + bytes.len() && matches!(number, 0 | 4 | 5);
                    expected |= inside && (*is_short || in_head) || at_seam;
                    start += bytes.len();
                }
                assert_eq!(frames.is_unfinished(), expected, "after {end} bytes in pieces of {piece}");
            }
            assert_eq!((frames.earned[0], frames.idle), (3 * GRPC_IDLE_FRAMES_PER_USEFUL, 4));
        }
    }

    #[test]
    fn floods_are_what_does_nothing() {
        let mut frames = Frames::new();
        frames.received(&[0; PREFACE_BYTES]);
        let ping = frame(6, 0, 8);
        (0..GRPC_IDLE_FRAMES_PER_SECOND).for_each(|_| frames.received(&ping));
        assert!(!frames.is_flood());
        frames.received(&frame(DATA, 1, 0));
        assert!(frames.is_flood());
        frames.next_second();
        assert!(!frames.is_flood());
        for _ in 0..GRPC_IDLE_FRAMES_PER_SECOND {
            frames.received(&frame(HEADERS, END_HEADERS, 5));
            (0..GRPC_IDLE_FRAMES_PER_USEFUL).for_each(|_| frames.received(&ping));
        }
        assert!(!frames.is_flood());
        // A client that takes a long answer opens its windows again, if need be in the next second.
        for _ in 0..2 {
            frames.next_second();
        }
        frames.sent(64 << 20);
        frames.next_second();
        let window = frame(8, 0, 4);
        (0..2 * (64 << 20) / (16 << 10)).for_each(|_| frames.received(&window));
        assert!(!frames.is_flood());
        frames.next_second();
        (0..=GRPC_IDLE_FRAMES_PER_SECOND).for_each(|_| frames.received(&window));
        assert!(frames.is_flood());
    }

    /// A client is stuck when a whole second passes within one frame or one head, and not when each second ends in another.
    #[test]
    fn stuck_is_who_stays_within_one_frame() {
        let mut frames = Frames::new();
        assert!(frames.next_second(), "no preface has come");
        frames.received(&[0; PREFACE_BYTES]);
        frames.received(&frame(4, 0, 0));
        assert!(!frames.next_second() && !frames.next_second(), "nothing is under way");
        let head = frame(HEADERS, END_HEADERS, 20);
        for _ in 0..20 {
            frames.received(&head[..15]);
            assert!(!frames.next_second(), "it began in this second");
            frames.received(&head[15..]);
        }
        frames.received(&frame(HEADERS, 0, 3));
        assert!(!frames.next_second());
        for _ in 0..3 {
            frames.received(&frame(CONTINUATION, 0, 3));
            assert!(frames.next_second(), "headers that do not end are one head");
        }
        frames.received(&frame(CONTINUATION, END_HEADERS, 3));
        assert!(!frames.next_second());
        frames.received(&frame(DATA, 0, 30)[..20]);
        assert!(!frames.next_second() && !frames.next_second(), "data may take its time");
        assert_eq!(frames.heads(), 21);
    }
}
