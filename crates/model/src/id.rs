//! Identifiers that no host owns: a job, object or session keeps its id wherever its work is handed.

use std::fmt;

macro_rules! bytes_id {
    ($(#[$doc:meta])* $name:ident, $len:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub [u8; $len]);

        impl $name {
            /// Reads an id from exactly as many bytes as it has.
            pub fn from_slice(bytes: &[u8]) -> Option<Self> {
                bytes.try_into().ok().map(Self)
            }

            /// Reads the form that `Display` writes.
            pub fn from_hex(text: &str) -> Option<Self> {
                let bytes = data_encoding::HEXLOWER_PERMISSIVE.decode(text.as_bytes()).ok()?;
                Self::from_slice(&bytes)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&data_encoding::HEXLOWER.encode(&self.0))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({self})", stringify!($name))
            }
        }
    };
}

bytes_id!(
    /// A job: one (source, destination, options) asked for by one identity. The same request has the same id.
    JobId, 16
);
bytes_id!(
    /// One session: a control stream and the data streams joined to it. Random, chosen by the client.
    SessionId, 16
);
bytes_id!(
    /// The SHA-256 of a peer's public key (SubjectPublicKeyInfo): how endpoints and clients know each other.
    Pin, 32
);

/// An entry of a job's listing, numbered from 1 in listing order by the sender. 0 is the root of the job.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct ObjectId(pub u64);

impl ObjectId {
    pub const ROOT: ObjectId = ObjectId(0);
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_form_reads_back_and_wrong_lengths_are_refused() {
        let pin = Pin([0xab; 32]);
        assert_eq!(Pin::from_hex(&pin.to_string()), Some(pin));
        assert_eq!(Pin::from_hex("abcd"), None);
        assert_eq!(JobId::from_slice(&[0; 15]), None);
    }
}
