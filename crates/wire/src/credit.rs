//! Credit: how far a sender may run ahead of its receiver (docs/protocol.md section 8).
//!
//! Entries are granted as a total from the start of the job; bytes as an amount in flight. The sender never exceeds
//! either, and the receiver closes a session that does.

/// The sender's account of entries.
#[derive(Clone, Copy, Debug, Default)]
pub struct EntryCredit {
    granted: u64,
    used: u64,
}

impl EntryCredit {
    /// A grant never shrinks.
    pub fn grant(&mut self, total: u64) {
        self.granted = self.granted.max(total);
    }

    pub fn available(&self) -> u64 {
        self.granted - self.used
    }

    /// # Panics
    /// When more is used than was granted: that is this program's own mistake.
    pub fn take(&mut self, entries: u64) {
        assert!(entries <= self.available(), "described {entries} entries with credit for {}", self.available());
        self.used += entries;
    }
}

/// The sender's account of bytes in flight.
#[derive(Clone, Copy, Debug, Default)]
pub struct ByteCredit {
    granted: u64,
    in_flight: u64,
    /// Of those, what has not left this side.
    waiting: u64,
}

impl ByteCredit {
    pub fn grant(&mut self, in_flight_bytes: u64) {
        self.granted = in_flight_bytes;
    }

    /// True when `bytes` may go out. One unit may always be in flight: a chunk larger than the grant must not wait for
    /// ever.
    pub fn may_send(&self, bytes: u64) -> bool {
        let out = self.in_flight.saturating_sub(self.waiting);
        out == 0 || out.saturating_add(bytes) <= self.granted
    }

    /// Of what was counted as sent, `bytes` wait on this side.
    pub fn waits(&mut self, bytes: u64) {
        self.waiting += bytes;
    }

    pub fn leaves(&mut self, bytes: u64) {
        self.waiting = self.waiting.saturating_sub(bytes);
    }

    pub fn sent(&mut self, bytes: u64) {
        self.in_flight += bytes;
    }

    pub fn acknowledged(&mut self, bytes: u64) {
        self.in_flight = self.in_flight.saturating_sub(bytes);
    }

    pub fn in_flight(&self) -> u64 {
        self.in_flight
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_smaller_grant_does_not_take_entries_back() {
        let mut credit = EntryCredit::default();
        credit.grant(10);
        credit.take(4);
        credit.grant(2);
        assert_eq!(credit.available(), 6);
    }

    #[test]
    fn one_chunk_larger_than_the_grant_may_go_alone() {
        let mut credit = ByteCredit::default();
        credit.grant(10);
        assert!(credit.may_send(100));
        credit.sent(100);
        assert!(!credit.may_send(1));
        credit.acknowledged(100);
        assert!(credit.may_send(10));
    }
}
