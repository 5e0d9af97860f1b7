//! Bounds of a stored failure, for any number of failed runs and any size of their texts.
//!
//! A failure is stored with its run and, as a cause, with the ancestors and with requested rollbacks. So a failure
//! without bounds would make the record of a hierarchy grow with the square of its width.

use std::collections::{BTreeMap, BTreeSet};

use super::{Failure, Frame};

/// The default maximum of stored bytes of a text of a failure: its beginning and its end.
pub const FAILURE_TEXT_BYTES_MAX: usize = 8 * 1024;

/// The maximum number of stored causes of one failure. Only the number of the others is stored.
pub const FAILURE_CAUSES_MAX: usize = 50;

/// The type of a cause that replaces others.
const MORE: &str = "scoop:more";

/// The message part of such a cause if the others are like a stored one.
const LIKE_THIS: &str = "like this: ";

/// The message part of such a cause if they are not.
const OF_OTHER_KINDS: &str = "of other types or with other messages";

/// The approximate maximum of stored bytes of a failure.
const BYTES_MAX: usize = 128 * 1024;

/// The approximate maximum of stored bytes with a requested rollback. Each child of the parent has a copy.
const REQUESTED_BYTES_MAX: usize = 4 * 1024;

/// The maximum nesting of failures with a requested rollback.
const REQUESTED_DEPTH_MAX: usize = 6;

/// The maximum of stored bytes of a name: a type or a source.
const NAME_BYTES_MAX: usize = 1024;

/// The maximum of quoted bytes of a type and of a message, which identify the failures that were left out.
const QUOTE_BYTES_MAX: usize = 160;

/// The minimum of bytes planned for a cause, which limits the number of stored causes.
const CAUSE_BYTES_MIN: usize = 400;

/// The approximate bytes of a failure or a frame as JSON, without its texts.
const KEYS_BYTES: usize = 70;

impl Failure {
    /// The stored form of the failure: at most `text_bytes` bytes of each text, [`FAILURE_CAUSES_MAX`] causes in each
    /// list, and about 128 KiB in all.
    ///
    /// Causes of the same type and message count as one kind. One cause of each kind is kept before a second one. A
    /// shortened text contains the number of omitted bytes. Omitted causes are replaced by one such as `and 950 more
    /// like this`. A value for [`Failure::find`] is kept as a whole or not at all.
    ///
    /// ```
    /// # use scoop_core::Failure;
    /// let out = Failure::new("stock.out", "no chairs left", "stock[w1]");
    /// let all = Failure::new("ChildRolledBackException", "", "orders[w1]").caused_by(vec![out; 1_000]);
    /// let stored = all.bounded(8_192);
    /// assert_eq!(stored.causes.len(), 51);
    /// assert_eq!(stored.causes[50].message, "and 950 more like this: stock.out: no chairs left");
    /// ```
    #[must_use]
    pub fn bounded(self, text_bytes: usize) -> Self {
        self.within_bytes(text_bytes, BYTES_MAX)
    }

    /// The stored form of the failure as the cause of requested rollbacks.
    pub(crate) fn bounded_for_requests(self, text_bytes: usize) -> Self {
        if self.bytes() <= REQUESTED_BYTES_MAX {
            return self.bounded(text_bytes);
        }
        let causes = self.causes.iter().cloned().map(Self::ranked);
        let causes = causes.flat_map(|cause| cause.prune(REQUESTED_DEPTH_MAX)).collect();
        Self { causes, ..self }.within_bytes(text_bytes, REQUESTED_BYTES_MAX)
    }

    /// A cause that replaces `count` failures, all like this type and message, or unlike the listed ones.
    #[doc(hidden)]
    pub fn more(count: u64, like_this: Option<(&str, &str)>) -> Self {
        more(count, &like_this.map_or(OF_OTHER_KINDS.to_owned(), |(kind, message)| like(kind, message)))
    }

    /// The number of failures that this replaces, if it replaces others.
    pub(crate) fn replaced_count(&self) -> Option<u64> {
        if self.kind != MORE {
            return None;
        }
        read_more(&self.message).map(|(count, _)| count)
    }

    /// The number of failures that this replaces and that are unlike all listed ones.
    pub(crate) fn unlisted_count(&self) -> u64 {
        let others = |(count, which): (u64, &str)| (which == OF_OTHER_KINDS).then_some(count);
        if self.kind == MORE { read_more(&self.message).and_then(others).unwrap_or(0) } else { 0 }
    }

    fn within_bytes(self, text_bytes: usize, bytes: usize) -> Self {
        if self.bytes() <= bytes && self.is_within(text_bytes) { self } else { self.cut(text_bytes, bytes) }
    }

    /// The approximate size as JSON, in bytes.
    #[doc(hidden)]
    pub fn bytes(&self) -> usize {
        self.own_bytes() + self.causes.iter().map(Self::bytes).sum::<usize>()
    }

    fn own_bytes(&self) -> usize {
        let frames: usize = self.stack_trace.iter().map(Frame::bytes).sum();
        KEYS_BYTES + self.message.len() + self.kind.len() + self.source.len() + frames
    }

    /// Whether no text and no list of causes is too long.
    fn is_within(&self, text_bytes: usize) -> bool {
        let texts = self.is_data() || self.message.len() <= text_bytes;
        texts
            && self.kind.len().max(self.source.len()) <= NAME_BYTES_MAX
            && self.reasons().filter(|cause| cause.replaced_count().is_none()).count() <= FAILURE_CAUSES_MAX
            && self.causes.iter().all(|cause| cause.is_within(text_bytes))
    }

    /// The same failure in `bytes` bytes, or little more.
    fn cut(&self, text_bytes: usize, bytes: usize) -> Self {
        let mut cut = Self::new(
            ends_of(&self.kind, NAME_BYTES_MAX),
            ends_of(&self.message, text_bytes.min(bytes / 2)),
            ends_of(&self.source, NAME_BYTES_MAX),
        );
        let mut left = (bytes / 4).min(bytes.saturating_sub(cut.own_bytes()));
        let frames = self.stack_trace.iter().take_while(|frame| {
            let fits = frame.bytes() <= left;
            left = left.saturating_sub(frame.bytes());
            fits
        });
        cut.stack_trace = frames.cloned().collect();
        let mut left = bytes.saturating_sub(cut.own_bytes());
        let data = self.causes.iter().filter(|cause| cause.is_data());
        let data: Vec<_> = data.filter(|data| data.bytes() <= left / 2).take(1).cloned().collect();
        left = left.saturating_sub(data.iter().map(Self::bytes).sum());

        let (chosen, others) = select(self.reasons(), (left / CAUSE_BYTES_MIN).clamp(1, FAILURE_CAUSES_MAX));
        left = left.saturating_sub(others.iter().map(Self::bytes).sum());
        let mut causes = Vec::with_capacity(chosen.len() + others.len() + data.len());
        for (at, cause) in chosen.iter().enumerate() {
            let bytes_each = left / (chosen.len() - at);
            let cause = (*cause).clone().within_bytes(text_bytes, bytes_each.max(CAUSE_BYTES_MIN / 2));
            left = left.saturating_sub(cause.bytes());
            causes.push(cause);
        }
        cut.causes = causes.into_iter().chain(others).chain(data).collect();
        cut
    }
}

impl Frame {
    fn bytes(&self) -> usize {
        let names = [&self.class_name, &self.function_name].into_iter().flatten();
        KEYS_BYTES + self.file_name.len() + names.map(String::len).sum::<usize>()
    }
}

/// The listed causes in their order, up to a number, with one of each kind before a second one; and the replacements of
/// the others.
fn select<'a>(
    causes: impl Iterator<Item = &'a Failure>,
    causes_max: usize,
) -> (Vec<&'a Failure>, Vec<Failure>) {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    let mut single = vec![];
    for cause in causes {
        match Some(cause).filter(|cause| cause.kind == MORE).and_then(|cause| read_more(&cause.message)) {
            Some((count, which)) => *counts.entry(which.to_owned()).or_default() += count,
            None => single.push(cause),
        }
    }
    let mut kinds = BTreeSet::new();
    let (first, later): (Vec<_>, Vec<_>) = single.iter().enumerate().partition(|(_, cause)| {
        let root = cause.root_causes().first().map(|root| (&root.kind, &root.message));
        kinds.insert((&cause.kind, &cause.message, root))
    });
    let mut chosen: Vec<_> = first.into_iter().chain(later).map(|(at, _)| at).collect();
    let left_out = chosen.split_off(causes_max.min(chosen.len()));
    chosen.sort_unstable();
    let known: BTreeSet<_> = chosen.iter().map(|at| single[*at].which()).collect();
    for which in left_out.into_iter().map(|at| single[at].which()) {
        let which = if known.contains(&which) { which } else { OF_OTHER_KINDS.to_owned() };
        *counts.entry(which).or_default() += 1;
    }
    // Causes that were left out earlier need not be like one that is listed now.
    let mut others = vec![];
    let mut unlike = counts.remove(OF_OTHER_KINDS).unwrap_or(0);
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    for (which, count) in counts {
        if known.contains(&which) || others.len() < causes_max {
            others.push(more(count, &which));
        } else {
            unlike += count;
        }
    }
    others.extend((unlike > 0).then(|| more(unlike, OF_OTHER_KINDS)));
    (chosen.into_iter().map(|at| single[at]).collect(), others)
}

impl Failure {
    /// The description of failures like this one.
    fn which(&self) -> String {
        like(&self.kind, &self.message)
    }
}

fn like(kind: &str, message: &str) -> String {
    let (kind, message) = (head_of(kind, QUOTE_BYTES_MAX), head_of(message, QUOTE_BYTES_MAX));
    format!("{LIKE_THIS}{kind}: {message}")
}

fn more(count: u64, which: &str) -> Failure {
    Failure::new(MORE, format!("and {count} more {which}"), "scoop")
}

/// The number and the description of the failures that a cause replaces.
fn read_more(message: &str) -> Option<(u64, &str)> {
    let (count, which) = message.strip_prefix("and ")?.split_once(" more ")?;
    Some((count.parse().ok()?, which))
}

/// The beginning and the end of a text that is too long, with the number of bytes left out between them.
fn ends_of(text: &str, bytes_max: usize) -> String {
    if text.len() <= bytes_max {
        return text.to_owned();
    }
    // The number of bytes left out has at most as many digits as that of all.
    let gap = |bytes: usize| format!(" [.. {bytes} bytes left out ..] ");
    let left = bytes_max.saturating_sub(gap(text.len()).len());
    let head = head_of(text, left - left / 3);
    let from = text.ceil_char_boundary(text.len() - left / 3);
    let tail = &text[from..];
    format!("{head}{}{tail}", gap(text.len() - head.len() - tail.len()))
}

fn head_of(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXTS: usize = FAILURE_TEXT_BYTES_MAX;

    fn above(causes: Vec<Failure>) -> Failure {
        Failure::child_rolled_back(Some("reserve"), "orders[w]", causes)
    }

    fn json(failure: &Failure) -> usize {
        serde_json::to_string(failure).unwrap().len()
    }

    #[test]
    fn long_text_is_stored_with_its_beginning_and_its_end() {
        let text = format!("begin{}end", "ž".repeat(500_000));
        let stored = Failure::new("T", &text, "s").bounded(TEXTS);
        assert!(
            stored.message.len() <= TEXTS && stored.message.len() > TEXTS - 8,
            "{}",
            stored.message.len()
        );
        assert!(stored.message.starts_with("beginž") && stored.message.ends_with("žend"));
        assert!(stored.message.contains(" bytes left out ..] "));
        assert_eq!(stored.clone().bounded(TEXTS), stored);
        assert_eq!(Failure::new("T", &text, "s").bounded(300).message.len().min(300), 299);
    }

    #[test]
    fn failure_within_its_bounds_is_stored_unchanged() {
        let causes = (0..FAILURE_CAUSES_MAX).map(|n| Failure::new("T", n.to_string(), "s"));
        let failure = above(causes.collect());
        let stored = failure.clone().bounded(TEXTS);
        assert_eq!(stored, failure);
        assert!(std::sync::Arc::ptr_eq(&stored.causes, &failure.causes));
    }

    #[test]
    fn of_each_kind_of_cause_one_is_stored_before_a_second_one() {
        let out = Failure::new("stock.out", "no chairs left", "stock[w]");
        let rare = Failure::new("bank.closed", "closed", "bank[w]");
        let mut causes = vec![out; 1_000];
        causes.push(rare.clone());
        let stored = above(causes).bounded(TEXTS);
        assert_eq!(stored.causes.len(), FAILURE_CAUSES_MAX + 1);
        assert_eq!(stored.causes[FAILURE_CAUSES_MAX - 1], rare);
        assert_eq!(
            stored.causes[FAILURE_CAUSES_MAX].message,
            "and 951 more like this: stock.out: no chairs left"
        );
        assert_eq!(stored.root_causes().len(), FAILURE_CAUSES_MAX);
        assert_eq!(stored.summary(), "no chairs left (and 1 other cause)");
    }

    #[test]
    fn causes_that_are_all_different_are_counted() {
        let causes = (0..10_000).map(|n| Failure::new("stock.out", format!("no chair {n}"), "stock[w]"));
        let stored = above(causes.collect()).bounded(TEXTS);
        assert_eq!(stored.causes.len(), FAILURE_CAUSES_MAX + 1);
        assert_eq!(stored.causes[FAILURE_CAUSES_MAX].message, format!("and 9950 more {OF_OTHER_KINDS}"));
        assert_eq!(stored.summary(), "no chair 0 (and 9999 other causes)");
    }

    #[test]
    fn numbers_of_causes_add_up_when_they_are_counted_again() {
        let out = || Failure::new("stock.out", "no chairs left", "stock[w]");
        let causes = vec![
            out(),
            Failure::more(900, Some(("stock.out", "no chairs left"))),
            Failure::more(7, Some(("T", "m"))),
        ];
        let causes = std::iter::repeat_n(out(), 60).chain(causes).collect();
        let stored = above(causes).bounded(TEXTS);
        let counted: u64 = stored.causes.iter().map(|cause| cause.replaced_count().unwrap_or(1)).sum();
        assert_eq!(counted, 61 + 900 + 7);
        assert_eq!(
            stored.causes[FAILURE_CAUSES_MAX].message,
            "and 911 more like this: stock.out: no chairs left"
        );
    }

    #[test]
    fn crowd_of_crowds_with_long_texts_stays_within_its_bytes() {
        let long = |n| Failure::new("T", format!("{n}{}", "x".repeat(20_000)), "s[w]");
        let crowd = |n: u32| above((0..50).map(|m| long(50 * n + m)).collect());
        let stored = above((0..50).map(crowd).collect()).bounded(TEXTS);
        assert!(json(&stored) <= BYTES_MAX * 5 / 4, "{}", json(&stored));
        assert!(stored.root_causes().len() >= 50);
        let deep = (0..30).fold(long(0), |cause, n| long(n).caused_by([cause]));
        let stored = deep.bounded(TEXTS);
        assert!(json(&stored) <= BYTES_MAX * 5 / 4, "{}", json(&stored));
    }

    #[test]
    fn request_to_roll_back_has_little_of_a_large_failure_and_all_of_a_small_one() {
        let small = above(vec![Failure::new("stock.out", "no chairs left", "stock[w]")]);
        let requested = Failure::parent_said_so("orders[w]", small.clone());
        assert_eq!(requested.clone().bounded_for_requests(TEXTS), requested);

        let long = |n: u32| Failure::new("T", format!("{n}{}", "x".repeat(5_000)), "s[w]");
        let crowd = above((0..1_000).map(long).collect()).bounded(TEXTS);
        let deep = (0..50).fold(crowd, |failure, _| above(vec![failure]));
        let requested = Failure::parent_said_so("orders[w]", deep).bounded_for_requests(TEXTS);
        assert!(json(&requested) <= REQUESTED_BYTES_MAX * 3 / 2, "{}", json(&requested));
        assert!(requested.root_causes()[0].message.starts_with("0x"), "{}", requested.report());
    }

    #[test]
    fn request_to_roll_back_keeps_the_main_cause_first_without_wrappers_between() {
        let text = |what: &str| Failure::new("T", format!("{what}{}", "x".repeat(3_000)), "s[w]");
        let (mut failed, mut reason) = (text("compensation "), text("reason "));
        for _ in 0..4 {
            let below = Failure::child_rolled_back(None, "s[w]", vec![reason]);
            reason = Failure::child_rollback_failed("0", "s[w]", vec![failed.clone(), below]);
            failed = Failure::child_rollback_failed("0", "s[w]", vec![failed, reason.clone()]);
        }
        let requested = Failure::parent_said_so("s[w]", reason).bounded_for_requests(TEXTS);
        assert!(requested.root_causes()[0].message.starts_with("reason "), "{}", requested.report());
    }

    #[test]
    fn value_of_an_error_is_stored_as_a_whole_or_not_at_all() {
        let data = Failure::new("scoop:data", format!("\"{}\"", "x".repeat(30_000)), "s");
        let coded = Failure::new("T", "m", "s").caused_by([data.clone()]);
        assert_eq!(coded.clone().bounded(TEXTS).causes[0], data);
        let requested = Failure::parent_said_so("s[w]", coded).bounded_for_requests(TEXTS);
        assert!(requested.causes[0].causes.is_empty());
        assert_eq!(requested.causes[0].kind, "T");
    }
}
