//! Reads an input as decisions: numbers and slices off its front, zeros when it is used up.

pub struct Bytes<'a> {
    rest: &'a [u8],
}

impl<'a> Bytes<'a> {
    pub fn new(data: &'a [u8]) -> Bytes<'a> {
        Bytes { rest: data }
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub fn u8(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    pub fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// At most `length_max` bytes: as many as the next byte says and as there are.
    pub fn slice(&mut self, length_max: usize) -> &'a [u8] {
        let length = usize::from(self.u8()).min(length_max).min(self.rest.len());
        let (slice, rest) = self.rest.split_at(length);
        self.rest = rest;
        slice
    }

    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        let length = N.min(self.rest.len());
        let (head, rest) = self.rest.split_at(length);
        array[..length].copy_from_slice(head);
        self.rest = rest;
        array
    }
}
