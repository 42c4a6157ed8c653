//! Rates of a device over time. They are complete, even if only some slices are exported.

/// Maximum number of bins per counter.
const MOST_BINS: i64 = 20_000;
/// Minimum width of a bin.
const LEAST_BIN_NS: i64 = 1_000_000;

/// Sums of one device in one bin.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bin {
    pub(super) read_bytes: i64,
    pub(super) write_bytes: i64,
    pub(super) requests: i64,
    pub(super) seeks: i64,
    /// Sum of the times that requests were in flight.
    pub(super) busy_ns: i128,
}

/// The bins of one device.
#[derive(Debug)]
pub(super) struct Bins {
    from_ns: i64,
    pub(super) width_ns: i64,
    pub(super) bins: Vec<Bin>,
    /// End sector of the last dispatched read or write.
    last_end: Option<i64>,
}

impl Bins {
    /// Bins for this span. Their width is 1, 2 or 5 times a power of ten.
    pub(super) fn new(from_ns: i64, to_ns: i64) -> Self {
        let span = to_ns.saturating_sub(from_ns).max(1);
        let mut width_ns = LEAST_BIN_NS;
        let mut steps = [2, 5, 10].into_iter().cycle();
        let mut decade = LEAST_BIN_NS;
        while span / width_ns >= MOST_BINS {
            let step = steps.next().unwrap_or(10);
            width_ns = decade.saturating_mul(step);
            if step == 10 {
                decade = width_ns;
            }
        }
        let count = usize::try_from(span / width_ns + 1).unwrap_or(1);
        Self { from_ns, width_ns, bins: vec![Bin::default(); count], last_end: None }
    }

    fn index(&self, at_ns: i64) -> Option<usize> {
        let i = usize::try_from(at_ns.checked_sub(self.from_ns)?.div_euclid(self.width_ns)).ok()?;
        (i < self.bins.len()).then_some(i)
    }

    /// Start of a bin.
    pub(super) fn at_ns(&self, i: usize) -> i64 {
        self.from_ns.saturating_add((i as i64).saturating_mul(self.width_ns))
    }

    /// Adds a request, in dispatch order. Bytes count at completion, as the device sees it. Discards have no bytes.
    pub(super) fn add(&mut self, op: &str, issue_ns: i64, complete_ns: Option<i64>, sector: i64, len_bytes: i64) {
        let data = matches!(op, "read" | "write");
        if let Some(i) = self.index(issue_ns).filter(|_| data) {
            self.bins[i].seeks += i64::from(self.last_end.is_some_and(|end| end != sector));
        }
        if data {
            self.last_end = Some(sector.saturating_add(len_bytes >> 9));
        }
        let Some(end) = complete_ns else { return };
        if let Some(i) = self.index(end) {
            let bin = &mut self.bins[i];
            bin.requests += 1;
            match op {
                "read" => bin.read_bytes = bin.read_bytes.saturating_add(len_bytes),
                "write" => bin.write_bytes = bin.write_bytes.saturating_add(len_bytes),
                _ => {}
            }
        }
        let last = self.at_ns(self.bins.len());
        let (mut at, end) = (issue_ns.max(self.from_ns), end.min(last));
        while at < end {
            let Some(i) = self.index(at) else { break };
            let next = self.at_ns(i + 1).min(end);
            self.bins[i].busy_ns += i128::from(next - at);
            at = next;
        }
    }
}
