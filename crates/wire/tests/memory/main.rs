//! What a peer's frame takes on the heap until it is decoded or refused: the largest that each message may be, in the forms
//! that make the most of few bytes.
//!
//! Not here: what a job keeps of what it was told.

mod counting;

use counting::peak_of;
use wire::FrameReader;
use wire::bounds::{kinds, lists};
use wire::frame::{self, FrameType};
use wire::limits::{CONTROL_BODY_BYTES_MAX, DECODED_BYTES_MAX};
use wire::message;

fn put(tag: u32, content: &[u8], out: &mut Vec<u8>) {
    let mut varint = |mut value: usize| {
        while value >= 0x80 {
            out.push(value as u8 | 0x80);
            value >>= 7;
        }
        out.push(value as u8);
    };
    varint((tag as usize) << 3 | 2);
    varint(content.len());
    out.extend_from_slice(content);
}

/// A body with `count` elements of `bytes` bytes at the end of `path`, spread over as many parents as `parents`.
fn body(path: &[u32], count: usize, element: &[u8], parents: usize) -> Vec<u8> {
    let (tag, above) = path.split_last().unwrap();
    let mut one = Vec::new();
    put(*tag, element, &mut one);
    let mut content = one.repeat(count.div_ceil(parents));
    for (depth, tag) in above.iter().enumerate().rev() {
        let mut out = Vec::new();
        put(*tag, &content, &mut out);
        content = if depth == 1 { out.repeat(parents) } else { out };
    }
    content
}

/// The heap that a reader and the decoder take at most for one frame, beside the frame that lies ready, and whether it passed.
fn read(body: &[u8]) -> (usize, bool) {
    let frame = frame::encode(FrameType::Message, body);
    let mut is_taken = false;
    let peak = peak_of(|| {
        let mut reader = FrameReader::new();
        reader.authenticated();
        // As the stream hands it over.
        for piece in frame.chunks(16 << 10) {
            let pushed = reader.push(piece, &mut |_, body| {
                is_taken = message::decode(body)?.is_some();
                Ok(())
            });
            if pushed.is_err() {
                break;
            }
        }
    });
    (peak, is_taken)
}

/// The frame itself is held once, and once more while room is made for its second half.
const HELD_BYTES_MAX: usize = CONTROL_BODY_BYTES_MAX * 3 / 2 + 1024;
/// What is refused is not decoded.
const REFUSED_BYTES_MAX: usize = HELD_BYTES_MAX + 4096;

#[test]
fn the_largest_frame_of_each_message_takes_no_more_than_is_said() {
    let mut largest = 0;
    for list in lists() {
        let (path, max) = (&list.path, list.elements_max);
        for parents in if path.len() == 4 && path[0] == 20 { [1, 1024] } else { [1, 1] } {
            let overhead = 24 + parents * 12 + max * 4;
            let longest = CONTROL_BODY_BYTES_MAX.saturating_sub(overhead) / max;
            for element in [vec![], vec![0xa], vec![0x0a, 1, 7], vec![0x12, 1, 7, 0x0a, 1, 7], filled(longest)] {
                let (peak, is_taken) = read(&body(path, max, &element, parents));
                // Elements of another form than this list has are refused by the decoder, in the middle of its work.
                assert!(peak <= HELD_BYTES_MAX + DECODED_BYTES_MAX, "{path:?}: {peak} bytes, taken: {is_taken}");
                largest = largest.max(peak);
            }
        }
        // As many empty elements as fit a frame: refused before the first is made.
        let (peak, is_taken) = read(&body(path, (CONTROL_BODY_BYTES_MAX - 64) / 2, &[], 1));
        assert!(!is_taken && peak <= REFUSED_BYTES_MAX, "{path:?}: {peak} bytes, taken: {is_taken}");
    }
    // Something was measured at all, and the bound is not idle.
    assert!(largest > 2 << 20, "{largest}");
}

/// One field of about the given length.
fn filled(length: usize) -> Vec<u8> {
    let mut element = Vec::new();
    put(2, &vec![b'x'; length.saturating_sub(5)], &mut element);
    element
}

/// All lists of one message full at once, which is more than each alone.
#[test]
fn a_message_with_all_its_lists_full_takes_no_more_than_is_said() {
    for (kind, _) in kinds() {
        let mut all = Vec::new();
        for list in lists().iter().filter(|list| list.path[0] == kind) {
            all.extend(body(&list.path[1..], list.elements_max, &[], 1));
        }
        let mut whole = Vec::new();
        put(kind, &all, &mut whole);
        let (peak, _) = read(&whole);
        assert!(peak <= HELD_BYTES_MAX + DECODED_BYTES_MAX, "{kind}: {peak} bytes");
    }
}

#[test]
fn a_message_that_is_never_long_is_refused_before_it_is_held() {
    for (kind, _) in kinds().filter(|(_, body_bytes_max)| *body_bytes_max < CONTROL_BODY_BYTES_MAX) {
        let mut long = Vec::new();
        put(kind, &vec![0; CONTROL_BODY_BYTES_MAX - 16], &mut long);
        let (peak, is_taken) = read(&long);
        assert!(!is_taken && peak < 4096, "{kind}: {peak} bytes");
    }
}

/// Fields that nobody knows are passed over, and nothing is made of them.
#[test]
fn unknown_fields_take_nothing() {
    for (kind, _) in kinds() {
        let unknown = body(&[kind, 1000], 4000, &[], 1);
        let (peak, is_taken) = read(&unknown);
        assert!(is_taken && peak < 64 << 10, "{kind}: {peak} bytes");
    }
    let (peak, _) = read(&body(&[1000], (CONTROL_BODY_BYTES_MAX - 64) / 3, &[], 1));
    assert!(peak <= REFUSED_BYTES_MAX, "{peak}");
}
