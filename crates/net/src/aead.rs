//! One AEAD key, in one of the two libraries that can carry records: what seals and opens the body of a record.
//!
//! Invariants:
//! - The key schedule of a cipher is erased when its key is dropped, whichever library holds it.
//! - What does not authenticate leaves no plaintext in the caller's memory: both libraries clear it.
//!
//! Not here: nonces and their order (`record`), which suite and library a process uses (`cipher`).

use std::mem::MaybeUninit;

pub(crate) const NONCE_BYTES: usize = 12;
pub(crate) const TAG_BYTES: usize = 16;
/// The header of a record, which is authenticated with it.
const AAD_BYTES: usize = 5;
/// The C library copies 4 KiB and more with `rep movsb`, which takes AMD Zen 3 25 times as long when the destination lies 1 to 31
/// bytes behind the source, modulo 4096. Records are 22 bytes longer than what is in them, so that happens to one after the other.
const COPIED_BYTES: usize = 1024;

/// A cipher suite of TLS 1.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suite {
    Aes128Gcm,
    Aes256Gcm,
    Chacha20Poly1305,
}

/// What seals and opens the records of an established connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    AwsLc,
    Ring,
}

/// The key is unusable, or the record does not authenticate; the libraries say no more.
#[derive(Debug)]
pub(crate) struct Refused;

pub(crate) enum Key {
    AwsLc(aws_lc_rs::aead::LessSafeKey),
    Ring(RingKey),
}

/// What is sealed: bytes that lie elsewhere, or those that were put where the record's body goes.
pub(crate) enum Plaintext<'a> {
    Elsewhere(&'a [u8]),
    /// That many bytes.
    InPlace(usize),
}

impl Plaintext<'_> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Plaintext::Elsewhere(bytes) => bytes.len(),
            Plaintext::InPlace(bytes) => *bytes,
        }
    }
}

impl Key {
    pub(crate) fn new(suite: Suite, library: Library, key: &[u8]) -> Result<Key, Refused> {
        match library {
            Library::AwsLc => {
                use aws_lc_rs::aead;
                let algorithm = match suite {
                    Suite::Aes128Gcm => &aead::AES_128_GCM,
                    Suite::Aes256Gcm => &aead::AES_256_GCM,
                    Suite::Chacha20Poly1305 => &aead::CHACHA20_POLY1305,
                };
                let key = aead::UnboundKey::new(algorithm, key).map_err(|_| Refused)?;
                Ok(Key::AwsLc(aead::LessSafeKey::new(key)))
            }
            Library::Ring => RingKey::new(suite, key).map(Key::Ring),
        }
    }

    /// Seals the plaintext and its content type into `body`, which is longer than the plaintext by one byte and a tag.
    pub(crate) fn seal(
        &self,
        nonce: [u8; NONCE_BYTES],
        header: [u8; AAD_BYTES],
        plaintext: Plaintext<'_>,
        content_type: u8,
        body: &mut [u8],
    ) -> Result<(), Refused> {
        let plaintext_bytes = plaintext.len();
        match self {
            Key::AwsLc(key) => {
                use aws_lc_rs::aead::{Aad, Nonce};
                let (body, trailer) = body.split_at_mut(plaintext_bytes);
                let (nonce, aad) = (Nonce::assume_unique_for_key(nonce), Aad::from(header));
                match plaintext {
                    Plaintext::Elsewhere(plain) => {
                        key.seal_out_of_place_scatter(nonce, aad, plain, body, &[content_type], trailer)
                    }
                    Plaintext::InPlace(_) => key.seal_in_place_scatter(nonce, aad, body, &[content_type], trailer),
                }
                .map_err(|_| Refused)
            }
            Key::Ring(key) => {
                use ring::aead::{Aad, Nonce};
                if let Plaintext::Elsewhere(plain) = plaintext {
                    copy(plain, &mut body[..plaintext_bytes]);
                }
                body[plaintext_bytes] = content_type;
                let (body, tag) = body.split_at_mut(plaintext_bytes + 1);
                let (nonce, aad) = (Nonce::assume_unique_for_key(nonce), Aad::from(header));
                let sealed = key.get().seal_in_place_separate_tag(nonce, aad, body).map_err(|_| Refused)?;
                tag.copy_from_slice(sealed.as_ref());
                Ok(())
            }
        }
    }

    /// Opens `body`, whose tag is `tag`: into `out`, which is as long, or in place where there is none.
    pub(crate) fn open(
        &self,
        nonce: [u8; NONCE_BYTES],
        header: [u8; AAD_BYTES],
        body: &mut [u8],
        tag: &[u8],
        out: Option<&mut [u8]>,
    ) -> Result<(), Refused> {
        match self {
            Key::AwsLc(key) => {
                use aws_lc_rs::aead::{Aad, Nonce};
                let (nonce, aad) = (Nonce::assume_unique_for_key(nonce), Aad::from(header));
                match out {
                    Some(out) => key.open_separate_gather(nonce, aad, body, tag, out).map_err(|_| Refused),
                    None => key.open_in_place_separate_tag(nonce, aad, tag, body).map(|_| ()).map_err(|_| Refused),
                }
            }
            Key::Ring(key) => {
                use ring::aead::{Aad, Nonce};
                let place = match out {
                    Some(out) => {
                        copy(body, out);
                        out
                    }
                    None => body,
                };
                let (nonce, aad) = (Nonce::assume_unique_for_key(nonce), Aad::from(header));
                let tag = tag.try_into().map_err(|_| Refused)?;
                key.get().open_in_place_separate_tag(nonce, aad, tag, place, 0..).map(|_| ()).map_err(|_| Refused)
            }
        }
    }
}

/// Copies in pieces that are too short for `rep movsb`, whatever lies where (`COPIED_BYTES`).
fn copy(from: &[u8], to: &mut [u8]) {
    assert_eq!(from.len(), to.len());
    for (from, to) in from.chunks(COPIED_BYTES).zip(to.chunks_mut(COPIED_BYTES)) {
        to.copy_from_slice(from);
    }
}

/// A key of ring, which does not erase its own.
pub(crate) struct RingKey(Box<MaybeUninit<ring::aead::LessSafeKey>>);

impl RingKey {
    fn new(suite: Suite, key: &[u8]) -> Result<RingKey, Refused> {
        use ring::aead;
        // What is erased in place of being dropped must own nothing elsewhere.
        const { assert!(!std::mem::needs_drop::<aead::LessSafeKey>()) }
        let algorithm = match suite {
            Suite::Aes128Gcm => &aead::AES_128_GCM,
            Suite::Aes256Gcm => &aead::AES_256_GCM,
            Suite::Chacha20Poly1305 => &aead::CHACHA20_POLY1305,
        };
        let key = aead::UnboundKey::new(algorithm, key).map_err(|_| Refused)?;
        Ok(RingKey(Box::new(MaybeUninit::new(aead::LessSafeKey::new(key)))))
    }

    fn get(&self) -> &ring::aead::LessSafeKey {
        // SAFETY: `new` is the only way to make one, and it initialises the key.
        unsafe { self.0.assume_init_ref() }
    }
}

impl Drop for RingKey {
    fn drop(&mut self) {
        // SAFETY: the memory is ours, holds nothing that needs dropping (see `new`), and may hold any bytes from here on: nobody
        // reads a key that is being dropped.
        unsafe { zeroize::zeroize_flat_type(&raw mut *self.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_library_seals_the_other_opens_in_both_places() {
        let plain: Vec<u8> = (0..5000u32).map(|i| (i * i / 8) as u8).collect();
        for suite in [Suite::Aes128Gcm, Suite::Aes256Gcm, Suite::Chacha20Poly1305] {
            let key = &[7; 32][..if suite == Suite::Aes128Gcm { 16 } else { 32 }];
            let [aws_lc, ring] = [Library::AwsLc, Library::Ring].map(|library| Key::new(suite, library, key).unwrap());
            for (seals, opens) in [(&aws_lc, &ring), (&ring, &aws_lc)] {
                for bytes in [0, 1, 15, 16, 17, 255, 1023, 1024, 1025, 4096, 5000] {
                    let mut body = vec![0; bytes + 1 + TAG_BYTES];
                    seals.seal([1; 12], [2; 5], Plaintext::Elsewhere(&plain[..bytes]), 23, &mut body).unwrap();
                    let mut gathered = [&plain[..bytes], &[0; 1 + TAG_BYTES]].concat();
                    seals.seal([1; 12], [2; 5], Plaintext::InPlace(bytes), 23, &mut gathered).unwrap();
                    assert!(body == gathered, "{suite:?} {bytes}");

                    let (text, tag) = body.split_at_mut(bytes + 1);
                    let mut out = vec![0; bytes + 1];
                    opens.open([1; 12], [2; 5], text, tag, Some(&mut out)).unwrap();
                    assert!(out[..bytes] == plain[..bytes] && out[bytes] == 23);
                    opens.open([1; 12], [2; 5], text, tag, None).unwrap();
                    assert!(text == out);
                }
            }
        }
    }

    #[test]
    fn what_does_not_authenticate_is_refused_and_leaves_no_plaintext() {
        for library in [Library::AwsLc, Library::Ring] {
            let key = Key::new(Suite::Aes128Gcm, library, &[7; 16]).unwrap();
            let mut body = vec![0; 100 + 1 + TAG_BYTES];
            key.seal([1; 12], [2; 5], Plaintext::Elsewhere(&[9; 100]), 23, &mut body).unwrap();
            let (text, tag) = body.split_at_mut(101);
            tag[3] ^= 1;
            let mut out = vec![0; 101];
            assert!(key.open([1; 12], [2; 5], text, tag, Some(&mut out)).is_err());
            assert!(!out.windows(8).any(|part| part == [9; 8]), "{library:?}");
            tag[3] ^= 1;
            assert!(key.open([1; 12], [3; 5], text, tag, Some(&mut out)).is_err());
            assert!(key.open([2; 12], [2; 5], text, tag, Some(&mut out)).is_err());
        }
    }

    #[test]
    fn keys_of_a_wrong_length_are_refused() {
        for library in [Library::AwsLc, Library::Ring] {
            assert!(Key::new(Suite::Aes256Gcm, library, &[7; 16]).is_err());
        }
    }
}
