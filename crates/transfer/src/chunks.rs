//! How long the chunks of a transfer between hosts are: as was asked, or by the distance.
//!
//! Invariant: all attempts of a transfer have chunks of one length: what was staged in others has to be read back before it counts.
//!
//! Not here: what travels in chunks, in which order, and what is left of chunks of another length (`mover`).

use model::options::{CHUNK_BYTES_DEFAULT, CHUNK_BYTES_FAR};
use model::quantity::ByteCount;
use model::{Location, TransferSpec};
use mover::limits::FAR;
use std::sync::OnceLock;
use std::time::Duration;

#[derive(Default)]
pub struct Chunks {
    /// The round trip that makes them shorter, if that of the first session does.
    far: OnceLock<Option<Duration>>,
}

impl Chunks {
    /// Their length, for a session with this round trip; zero where it is not known.
    pub fn bytes(&self, spec: &TransferSpec, round_trip: Duration) -> u64 {
        let far = self.far.get_or_init(|| Some(round_trip).filter(|trip| *trip >= FAR && may_be_shorter(spec)));
        if far.is_some() { CHUNK_BYTES_FAR } else { spec.options.chunk_bytes }
    }

    /// Why they are shorter than usual.
    pub fn note(&self) -> Option<String> {
        let round_trip = self.far.get().copied().flatten()?;
        let (length, ms) = (ByteCount(CHUNK_BYTES_FAR), round_trip.as_millis());
        Some(format!("chunks: {length}, because a round trip takes {ms} ms (--chunk-size)"))
    }
}

fn may_be_shorter(spec: &TransferSpec) -> bool {
    let TransferSpec { sources, destination, replicas, options, .. } = spec;
    let is_store = |location: &Location| matches!(location, Location::Url { .. });
    spec.may_shorten_chunks
        && options.chunk_bytes == CHUNK_BYTES_DEFAULT
        // A store is asked for a chunk at a time, and holds back a part until all of its chunks are there.
        && !sources.iter().chain([destination]).any(is_store)
        // Of several holders, one is asked for the digests of so many chunks in a round trip.
        && replicas.is_empty()
        // Hosts that write one file cut it alike, whatever their distance.
        && options.slice.is_none()
        // What grows comes as it is written.
        && options.follow.is_none()
        // Both sides compare in chunks of the length that was chosen for that.
        && !options.is_delta
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::follow::{Follow, Until};
    use std::sync::Arc;

    fn spec(source: &str, destination: &str) -> TransferSpec {
        let [source, destination] = [source, destination].map(|text| Location::parse(text.as_ref()).unwrap());
        TransferSpec::new(vec![source], destination)
    }

    fn bytes(spec: &TransferSpec, round_trip_us: u64) -> u64 {
        Chunks::default().bytes(spec, Duration::from_micros(round_trip_us))
    }

    #[test]
    fn chunks_are_shorter_over_distance_unless_a_length_was_asked_for() {
        for plain in [spec("data", "lab:in"), spec("lab:out", "data"), spec("gen:1x1", "lab:null:")] {
            assert_eq!([0, 9_999].map(|us| bytes(&plain, us)), [CHUNK_BYTES_DEFAULT; 2]);
            assert_eq!([10_000, 74_000].map(|us| bytes(&plain, us)), [CHUNK_BYTES_FAR; 2]);
        }
        let asked = TransferSpec { may_shorten_chunks: false, ..spec("data", "lab:in") };
        assert_eq!(bytes(&asked, 74_000), CHUNK_BYTES_DEFAULT);
        let mut other = spec("data", "lab:in");
        other.options.chunk_bytes = 1 << 20;
        assert_eq!(bytes(&other, 74_000), 1 << 20);
    }

    #[test]
    fn chunks_keep_their_length_where_others_count_on_it() {
        let [mut sliced, mut followed, mut held] = [(); 3].map(|()| spec("lab:out", "data"));
        sliced.options.slice = Some(Arc::default());
        followed.options.follow = Some(Arc::new(Follow::new(Until::Never, Vec::new())));
        held.replicas.push(Location::parse("other:out".as_ref()).unwrap());
        for other in [sliced, followed, held, spec("s3://b/x", "lab:in"), spec("lab:out", "s3://b/x")] {
            assert_eq!(bytes(&other, 74_000), CHUNK_BYTES_DEFAULT, "{other:?}");
        }
    }

    #[test]
    fn all_attempts_have_chunks_of_the_length_that_the_first_had() {
        let (plain, [near, far]) = (spec("data", "lab:in"), [1, 74].map(Duration::from_millis));
        for (first, next, length) in [(near, far, CHUNK_BYTES_DEFAULT), (far, near, CHUNK_BYTES_FAR)] {
            let chunks = Chunks::default();
            assert_eq!([first, next].map(|trip| chunks.bytes(&plain, trip)), [length; 2]);
            let is_told = chunks.note().is_some_and(|note| note.contains("2.00 MiB") && note.contains("74 ms"));
            assert_eq!(is_told, length == CHUNK_BYTES_FAR, "{:?}", chunks.note());
        }
    }
}
