//! Every decoder on damaged valid inputs, on the stable toolchain.
//!
//! `NIGH_TEST_LONG=1` runs minutes instead of moments. A failure prints the input; put it into
//! `tests/regressions/<decoder>/` with the fix.

use nigh_tests::decoders::{ALL, Decoder, Mutator};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// Inputs per decoder: about a second in all, or a few minutes.
fn inputs() -> u64 {
    if nigh_tests::long() { 1_000_000 } else { 3_000 }
}

fn run(decoder: &Decoder, input: &[u8], what: &str) {
    if catch_unwind(AssertUnwindSafe(|| (decoder.run)(input))).is_err() {
        let hex: String = input.iter().map(|byte| format!("{byte:02x}")).collect();
        panic!("decoder {} broke on {what}: {hex}", decoder.name);
    }
}

#[test]
fn kept_inputs_no_longer_break_decoders() {
    let regressions = Path::new(env!("CARGO_MANIFEST_DIR")).join("regressions");
    for decoder in ALL {
        // No folder: nothing has ever broken this one.
        let Ok(files) = std::fs::read_dir(regressions.join(decoder.name)) else { continue };
        for file in files {
            let path = file.unwrap().path();
            run(decoder, &std::fs::read(&path).unwrap(), &path.display().to_string());
        }
    }
}

#[test]
fn regression_folders_belong_to_decoders() {
    let Ok(folders) = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("regressions")) else {
        return;
    };
    for folder in folders {
        let name = folder.unwrap().file_name();
        assert!(ALL.iter().any(|decoder| name == decoder.name), "no decoder is called {name:?}");
    }
}

#[test]
fn damaged_inputs_do_not_break_decoders() {
    for decoder in ALL {
        let seeds = (decoder.seeds)();
        for (index, seed) in seeds.iter().enumerate() {
            run(decoder, seed, &format!("seed {index}"));
            // All of a short one, and of a long one about a thousand.
            for len in (0..seed.len()).step_by(1 + seed.len() / 1_000) {
                run(decoder, &seed[..len], &format!("the first {len} bytes of seed {index}"));
            }
        }
        let mut mutator = Mutator::new(0x6e69_6768, seeds);
        for number in 0..inputs() {
            run(decoder, &mutator.next_input(), &format!("mutation {number}"));
        }
    }
}
