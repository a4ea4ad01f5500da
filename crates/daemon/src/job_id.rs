//! The id of a job: what was asked for, by whom. The same command has the same id, so that it finds its own past.

use model::{JobId, Pin, TransferOptions};

/// `identity` asked for it; `sources` and `destination` are locations as text, local ones made absolute by the caller.
pub fn job_id(
    identity: Pin,
    sources: &[impl AsRef<[u8]>],
    destination: impl AsRef<[u8]>,
    options: &TransferOptions,
) -> JobId {
    let (files, directories) = options.chmod.map_or((u32::MAX, u32::MAX), |chmod| chmod);
    let mut bytes = Vec::new();
    put(&mut bytes, b"thalweg job 1");
    put(&mut bytes, &identity.0);
    bytes.extend_from_slice(&(sources.len() as u64).to_le_bytes());
    for source in sources {
        put(&mut bytes, source.as_ref());
    }
    put(&mut bytes, destination.as_ref());
    for word in [options.fsync.name(), options.verify.name(), options.digest.name(), options.engine.name()] {
        put(&mut bytes, word.as_bytes());
    }
    put(&mut bytes, &options.chunk_bytes.to_le_bytes());
    put(&mut bytes, &[u8::from(options.no_clobber)]);
    put(&mut bytes, &files.to_le_bytes());
    put(&mut bytes, &directories.to_le_bytes());
    let digest = net::sha256(&bytes);
    JobId::from_slice(&digest[..16]).expect("half of a SHA-256 is 16 bytes long")
}

/// Parts carry their length, so that no two requests run together into the same bytes.
fn put(bytes: &mut Vec<u8>, part: &[u8]) {
    bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
    bytes.extend_from_slice(part);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_request_has_the_same_id_and_any_change_another() {
        let pin = Pin([7; 32]);
        let options = TransferOptions::default();
        let id = job_id(pin, &["/a", "/b"], "lab:x", &options);
        assert_eq!(id, job_id(pin, &["/a", "/b"], "lab:x", &options));
        let others = [
            job_id(Pin([8; 32]), &["/a", "/b"], "lab:x", &options),
            job_id(pin, &["/a/b"], "lab:x", &options),
            job_id(pin, &["/b", "/a"], "lab:x", &options),
            job_id(pin, &["/a"], "/blab:x", &options),
            job_id(pin, &["/a", "/b", "lab:x"], "", &options),
            job_id(pin, &["/a", "/b"], "lab:x", &TransferOptions { no_clobber: true, ..options.clone() }),
            job_id(pin, &["/a", "/b"], "lab:x", &TransferOptions { chunk_bytes: 1 << 20, ..options.clone() }),
            job_id(pin, &["/a", "/b"], "lab:x", &TransferOptions { chmod: Some((0o600, 0o700)), ..options.clone() }),
        ];
        for (n, other) in others.iter().enumerate() {
            assert_ne!(*other, id, "{n}");
            assert!(!others[..n].contains(other), "{n}");
        }
    }

    #[test]
    fn ids_stay_what_they_are_between_versions() {
        let id = job_id(Pin([1; 32]), &["/data"], "lab:in", &TransferOptions::default());
        assert_eq!(id.to_string(), "9ef1d6c01cfd5334fa7a65dbd1440f4d");
    }
}
