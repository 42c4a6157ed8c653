//! Byte encoding of numbers and lists, for parts of a plan that are not kept in memory.

/// Encoder.
#[derive(Debug, Default)]
pub(crate) struct Put(pub(crate) Vec<u8>);

impl Put {
    /// Zigzag and variable length: small numbers of either sign take few bytes.
    pub(crate) fn number(&mut self, n: i64) {
        let mut n = (n << 1 ^ n >> 63) as u64;
        while n >= 0x80 {
            self.0.push(n as u8 | 0x80);
            n >>= 7;
        }
        self.0.push(n as u8);
    }

    /// Several numbers.
    pub(crate) fn numbers<const N: usize>(&mut self, numbers: [i64; N]) {
        numbers.into_iter().for_each(|n| self.number(n));
    }

    /// The length, then each element.
    pub(crate) fn list<T>(&mut self, list: &[T], mut each: impl FnMut(&mut Self, &T)) {
        self.number(list.len() as i64);
        list.iter().for_each(|x| each(self, x));
    }

    /// The length, then the bytes.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as i64);
        self.0.extend_from_slice(bytes);
    }
}

/// Decoder of what [`Put`] wrote. `None` at the end of the input or if the input is not such an encoding.
#[derive(Debug)]
pub(crate) struct Get<'a>(pub(crate) &'a [u8]);

impl<'a> Get<'a> {
    /// See [`Put::number`].
    pub(crate) fn number(&mut self) -> Option<i64> {
        let mut n = 0_u64;
        for shift in (0..70).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            n |= u64::from(byte & 0x7f).checked_shl(shift)?;
            if byte & 0x80 == 0 {
                return Some((n >> 1) as i64 ^ -((n & 1) as i64));
            }
        }
        None
    }

    /// See [`Put::list`].
    pub(crate) fn list<T>(&mut self, mut each: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let len = usize::try_from(self.number()?).ok()?;
        // Each element takes at least one byte, so a damaged length cannot reserve more than the input's size.
        let mut out = Vec::with_capacity(len.min(self.0.len()));
        for _ in 0..len {
            out.push(each(self)?);
        }
        Some(out)
    }

    /// See [`Put::bytes`].
    pub(crate) fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.number()?).ok()?;
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        let numbers = [0, 1, -1, 63, 64, -64, -65, 1 << 40, i64::MAX, i64::MIN];
        let mut put = Put::default();
        put.list(&numbers, |p, n| p.number(*n));
        assert_eq!(Get(&put.0).list(|g| g.number()).as_deref(), Some(&numbers[..]));
        assert_eq!(Get(&put.0[..5]).list(|g| g.number()), None);
    }
}
