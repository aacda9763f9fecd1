//! Writes the valid inputs of every decoder into `fuzz/corpus/<name>/`, from where the targets start.

use nigh_tests::decoders::ALL;
use std::path::Path;

fn main() -> std::io::Result<()> {
    for decoder in ALL {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(decoder.name);
        std::fs::create_dir_all(&folder)?;
        for (index, seed) in (decoder.seeds)().iter().enumerate() {
            std::fs::write(folder.join(format!("seed-{index:03}")), seed)?;
        }
    }
    Ok(())
}
