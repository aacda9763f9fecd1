//! What of a graph's quantizer is in images: what was learned, codes where vectors are not, and how well both fit what was written.
use super::Graph;
use super::generation::Generation;
use super::quantized::QuantizedRows;
use super::training::{Training, generation};
use crate::memory::Link;
use crate::quantizer::{Codec, Watch};
use crate::slot::Slot;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Bytes before what a codec has learned: its number, and the vectors that it was trained at.
const SAVED_HEAD: usize = 1 + 8;

/// A codec that was saved, and codes that were saved with it.
pub struct SavedCodes {
    generation: Generation,
    /// Of what was learned: numbers come again after 255 trainings, and after a start.
    fingerprint: u32,
}

impl SavedCodes {
    /// Whether both are of one training.
    pub fn is_same(&self, other: &SavedCodes) -> bool {
        let training = |saved: &SavedCodes| (saved.generation.number, saved.fingerprint);
        training(self) == training(other)
    }

    /// Sets the code of a slot. False, and nothing is set, when it is one of another codec, by the number that [`Graph::saved_code`]
    /// gave with it.
    ///
    /// # Errors
    /// The code has another length than those of this codec, or there is no room for it.
    pub fn set(&mut self, slot: Slot, number: u8, code: &[u8]) -> Result<bool, String> {
        let Generation { number: own, rows, codec, .. } = &mut self.generation;
        if number != *own {
            return Ok(false);
        }
        if code.len() != rows.row_len() || slot as usize >= rows.capacity() {
            return Err(format!("a code of {} bytes of slot {slot}, not {}", code.len(), rows.row_len()));
        }
        if !codec.is_code(code) {
            return Err(format!("the code of slot {slot} names what there is not"));
        }
        rows.commit(slot as usize + 1).map_err(|error| error.to_string())?;
        rows.row_mut(slot as usize).copy_from_slice(code);
        Ok(true)
    }
}

impl QuantizedRows {
    /// Owner: the codec that walks go over, else the one whose codes are being written.
    fn save(&self, training: &Training) -> Vec<u8> {
        let Some(generation) = training.written_links().next().map(generation) else { return Vec::new() };
        let mut saved = vec![generation.number];
        saved.extend_from_slice(&(generation.trained_at as u64).to_le_bytes());
        saved.extend_from_slice(&generation.codec.save());
        saved
    }

    /// A codec as [`Self::save`] left it, with room for its codes.
    fn load(&self, saved: &[u8]) -> Result<SavedCodes, String> {
        let damaged = || "what a quantizer has learned is damaged".to_owned();
        let (head, learned) = saved.split_first_chunk::<SAVED_HEAD>().ok_or_else(damaged)?;
        let (&number, at) = head.split_first().ok_or_else(damaged)?;
        let at = u64::from_le_bytes(at.try_into().map_err(|_| damaged())?);
        let codec = Codec::load(self.config.quantization, self.metric, self.dim, learned);
        let codec = codec.filter(|_| number > 0 && at > 0).ok_or_else(damaged)?;
        let rows = self.reserve(&codec).map_err(|error| error.to_string())?;
        let (codec, trained_at) = (Arc::new(codec), at as usize);
        let generation = Generation { number, codec, trained_at, rows, end: AtomicU32::new(0) };
        Ok(SavedCodes { generation, fingerprint: crc32c::crc32c(learned) })
    }

    /// Owner: takes such a codec over, before there is another. Codes of all vectors below `end` are to be written, unless they
    /// are there.
    fn adopt(
        &self,
        training: &mut Training,
        end: usize,
        saved: SavedCodes,
        whole: bool,
        watch: Option<Watch>,
    ) -> Result<(), String> {
        assert!(
            training.current.or(training.next).is_none() && training.settled(),
            "restored before anything is trained"
        );
        let SavedCodes { generation, .. } = saved;
        generation.rows.commit(end).map_err(|error| error.to_string())?;
        training.watch = watch.unwrap_or_else(|| Watch::unknown(generation.trained_at as u64));
        if whole {
            generation.end.store(end as Slot, Ordering::Relaxed);
        }
        training.begin_encoding(Link::boxed(generation), end);
        if whole {
            self.publish_next(training);
            // Repairs may come before the first round.
            self.begin_round();
        }
        self.note_bytes(training);
        Ok(())
    }
}

impl Graph {
    /// Owner: what the quantizer that walks go over has learned, or the first one, for [`Self::load_codec`]; empty without one.
    pub fn save_codec(&self) -> Vec<u8> {
        self.quantized
            .as_ref()
            .map_or_else(Vec::new, |quantized| quantized.save(&self.owner_for_codes().training))
    }

    /// What [`Self::save_codec`] of an equal graph gave, for codes that were saved with it and for [`Self::adopt_codes`].
    ///
    /// # Errors
    /// When the graph has no quantizer, the bytes are not of its, or there is no address space for codes.
    pub fn load_codec(&self, saved: &[u8]) -> Result<SavedCodes, String> {
        self.quantized.as_ref().ok_or("a quantizer in an image without one")?.load(saved)
    }

    /// Owner, of a graph whose vectors have just been restored: takes a saved quantizer over. Walks go over its codes from now on where
    /// they are `whole`, those of all vectors; else jobs begin with writing them. `watch`: how well it fits, where that is known.
    ///
    /// # Errors
    /// When there is no room for codes.
    pub fn adopt_codes(&self, saved: SavedCodes, whole: bool, watch: Option<Watch>) -> Result<(), String> {
        let quantized = self.quantized.as_ref().ok_or("a quantizer in an image without one")?;
        quantized.adopt(&mut self.owner_for_codes().training, self.slots_end(), saved, whole, watch)
    }

    /// Owner: the code of a written slot that walks go over, with the number of its quantizer; `None` while they go over something
    /// else.
    pub fn saved_code(&self, slot: Slot) -> Option<(u8, &[u8])> {
        self.quantized.as_ref()?.code(slot)
    }
}
