//! Signatures under notes, as C2SP's signed-note has them: Ed25519 over the text, found by the key's name and id.
//!
//! Not here: what a note says (`model::set`), and whose signature is asked for.

use crate::identity::{Identity, SPKI_PREFIX, sha256, signer};
use model::set::Signed;
use model::set::signed::{PublicKey, Signature};

/// The public half of a key, under the name by which it signs.
pub fn public_key(identity: &Identity, name: &str) -> PublicKey {
    let key = identity.spki()[SPKI_PREFIX.len()..].try_into().expect("an Ed25519 key has 32 bytes");
    PublicKey { name: name.to_owned(), id: id_of(name, &key), key }
}

/// Signs a note with each of these keys.
pub fn sign(text: String, keys: &[(&Identity, &str)]) -> Signed {
    let signature = |(identity, name): &(&Identity, &str)| Signature {
        key_name: (*name).to_owned(),
        key_id: public_key(identity, name).id,
        bytes: identity.sign(text.as_bytes()).to_vec(),
    };
    Signed { signatures: keys.iter().map(signature).collect(), text }
}

/// Whether this key signed the note. The name and id of a key are those that its bytes make.
pub fn is_signed_by(note: &Signed, key: &PublicKey) -> bool {
    let spki = [&SPKI_PREFIX[..], &key.key].concat();
    let is_its = |signature: &&Signature| signature.key_name == key.name && signature.key_id == key.id;
    key.id == id_of(&key.name, &key.key)
        && note
            .signatures
            .iter()
            .filter(is_its)
            .any(|signature| signer(&spki, note.text.as_bytes(), &signature.bytes).is_some())
}

fn id_of(name: &str, key: &[u8; 32]) -> [u8; 4] {
    let digest = sha256(&PublicKey::id_material(name, key));
    [digest[0], digest[1], digest[2], digest[3]]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_signed_by_those_who_signed_it() {
        let (one, two) = (Identity::generate().unwrap(), Identity::generate().unwrap());
        let note = sign("text\n".to_owned(), &[(&one, "a"), (&two, "b")]);
        let note = Signed::parse(note.write().as_bytes()).unwrap();
        let key = public_key;
        assert!(is_signed_by(&note, &key(&one, "a")) && is_signed_by(&note, &key(&two, "b")));
        assert!(!is_signed_by(&note, &key(&one, "b")), "a key has one name");
        assert!(!is_signed_by(&note, &key(&Identity::generate().unwrap(), "a")));
        let other = Signed { text: "next\n".to_owned(), ..note.clone() };
        assert!(!is_signed_by(&other, &key(&one, "a")));
        let renamed = PublicKey { id: [0; 4], ..key(&one, "a") };
        assert!(!is_signed_by(&note, &renamed));
    }

    /// The example of the specification: its key, text and signature.
    #[test]
    fn the_specifications_example_is_understood() {
        let key = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW";
        let key = PublicKey::parse(key).unwrap();
        let text =
            "If you think cryptography is the answer to your problem,\nthen you don't know what your problem is.\n";
        let note = format!(
            "{text}\n\u{2014} PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n"
        );
        assert!(is_signed_by(&Signed::parse(note.as_bytes()).unwrap(), &key));
    }
}
