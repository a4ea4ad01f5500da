//! Digests of whole objects, for comparing what two sides have.

use crate::limits::BLOCK_BYTES;
use model::{ChunkHasher, Digest, DigestAlgorithm};
use store::SourceFile;

/// Reads an object of this length to its end. `None` when it turned out to have another length, or `goes_on` said no.
pub fn of_file(
    file: &dyn SourceFile,
    size_bytes: u64,
    algorithm: DigestAlgorithm,
    goes_on: &dyn Fn() -> bool,
) -> store::Result<Option<Digest>> {
    let mut hasher = ChunkHasher::new(algorithm, 0);
    let mut buffer = vec![0; BLOCK_BYTES.min(size_bytes as usize + 1)];
    let mut at = 0;
    loop {
        let got = file.read_at(at, &mut buffer)?;
        at += got as u64;
        if got == 0 || at > size_bytes || !goes_on() {
            break;
        }
        hasher.update(&buffer[..got]);
        if got < buffer.len() {
            break;
        }
    }
    Ok((at == size_bytes && goes_on()).then(|| hasher.finish(true)))
}
