//! What a graph says of the codes of its quantizer, and how vectors are given up for them.
use super::Graph;
use super::quantized::QuantizedRows;
use crate::slot::Slot;

impl Graph {
    /// Whether walks go over the codes of the quantizer by now.
    pub fn is_quantized(&self) -> bool {
        self.quantized.as_ref().is_some_and(QuantizedRows::is_published)
    }

    /// Bytes of these codes and of what was learned for them.
    pub fn quantized_bytes(&self) -> usize {
        self.quantized.as_ref().map_or(0, QuantizedRows::bytes)
    }

    /// The number of the quantizer whose codes walks go over; 0 without.
    pub fn codes_number(&self) -> u8 {
        self.quantized.as_ref().map_or(0, QuantizedRows::number)
    }

    /// Owner, while no plan is in flight and every written slot is linked: from now on a slot's vector is what its code stands for, for whoever
    /// begins to look. Codes decide about edges as well.
    ///
    /// # Panics
    /// Before walks go over codes of a quantizer.
    pub fn give_up_vectors(&self) {
        assert!(self.is_quantized(), "there is nothing in place of vectors");
        self.quantized.iter().for_each(QuantizedRows::begin_round);
        self.set_bare(true);
    }

    /// What the code of a slot stands for, over the first components of `vector`; false while vectors are there. The caller is pinned, or
    /// the owner.
    ///
    /// # Panics
    /// When `vector` is shorter than the dimension.
    pub fn decode(&self, slot: Slot, vector: &mut [f32]) -> bool {
        match self.quantized.as_ref().filter(|_| self.is_bare()).and_then(QuantizedRows::published) {
            Some(generation) => {
                generation.codec.decode(generation.rows.row(slot as usize), vector);
                true
            }
            None => false,
        }
    }

    /// A linked slot whose code is not that of its vector, while walks go over codes.
    #[cfg(test)]
    pub(crate) fn miscoded(&self) -> Option<Slot> {
        let generation = self.quantized.as_ref()?.published()?;
        (0..self.slots_end() as Slot).filter(|&slot| self.is_linked(slot)).find(|&slot| {
            let mut code = vec![0; generation.codec.code_len()];
            generation.codec.encode(&self.vector(slot)[..self.config().dim], &mut code);
            self.saved_code(slot).is_none_or(|(_, saved)| saved != code)
        })
    }
}
