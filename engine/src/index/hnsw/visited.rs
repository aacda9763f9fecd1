//! Which slots a beam has met: a bitset that is cleared by the words it touched. At 100,000 slots it stays in the
//! first-level cache, which epoch tables of one or two bytes per slot do not.
use crate::slot::Slot;

#[derive(Default)]
pub(super) struct Visited {
    words: Vec<u64>,
    touched: Vec<u32>,
}

impl Visited {
    /// Forgets everything and makes room for `slots` slots. Cost: one store per touched word.
    pub(super) fn reset(&mut self, slots: usize) {
        for word in self.touched.drain(..) {
            self.words[word as usize] = 0;
        }
        let words = slots.div_ceil(64);
        if self.words.len() < words {
            self.words.resize(words, 0);
        }
    }

    /// Whether a slot is marked.
    #[inline]
    pub(super) fn contains(&self, slot: Slot) -> bool {
        self.words.get((slot / 64) as usize).is_some_and(|word| word >> (slot % 64) & 1 == 1)
    }

    /// Marks a slot; whether it was new.
    #[inline]
    pub(super) fn insert(&mut self, slot: Slot) -> bool {
        let (index, bit) = ((slot / 64) as usize, 1u64 << (slot % 64));
        let Some(word) = self.words.get_mut(index) else { return self.insert_beyond(slot) };
        if *word == 0 {
            self.touched.push(index as u32);
        }
        let new = *word & bit == 0;
        *word |= bit;
        new
    }

    /// A slot that was linked after the beam began.
    #[cold]
    fn insert_beyond(&mut self, slot: Slot) -> bool {
        self.words.resize((slot / 64) as usize + 1, 0);
        self.insert(slot)
    }
}
