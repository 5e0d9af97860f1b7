//! Random numbers that follow from a seed.

/// A generator of numbers: splitmix64, which needs no more state than its seed.
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any number.
    pub(crate) fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below this one; 0 if there is none.
    pub(crate) fn below(&mut self, limit: u32) -> u32 {
        let rolled = self.roll() % u64::from(limit.max(1));
        u32::try_from(rolled).unwrap_or_default()
    }

    /// A number from the first to the last.
    pub(crate) fn between(&mut self, first: u32, last: u32) -> u32 {
        first + self.below(last - first + 1)
    }

    /// True in this percentage of calls.
    pub(crate) fn percent(&mut self, chance: u32) -> bool {
        self.below(100) < chance
    }

    /// A number that is small more often than large: below a tenth of the limit half of the time.
    pub(crate) fn mostly_below(&mut self, limit: u32) -> u32 {
        if self.percent(50) { self.below(limit / 10) } else { self.below(limit) }
    }
}
