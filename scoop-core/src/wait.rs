//! Who is waited for: the strategies of launches.
//!
//! Without a strategy, a run goes on when every handler of each message has ended that it has launched. A strategy is a
//! pure function of what became of these handlers so far. The engine asks it when one of them has ended, or when a time has come.
//! [`AtLeast`], [`Only`], [`Without`] and [`Window`] are built in. A program may have others: see [`WaitStrategy`].

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::Failure;
pub use crate::run_wait::MessageWait;

/// A rule about whom a run waits for after it has launched a message.
///
/// [`AtLeast`], [`Only`], [`Without`] and [`Window`] are built in. One of your own is a type that can be stored, and a line that makes
/// programs find it by its name:
///
/// ```
/// # extern crate scoop_core as scoop;
/// use scoop::wait::{ChildState, Verdict, WaitFacts, WaitStrategy};
/// use serde::{Deserialize, Serialize};
///
/// /// Waits for a majority of the handlers.
/// #[derive(Serialize, Deserialize)]
/// struct Majority;
///
/// impl WaitStrategy for Majority {
///     const NAME: &'static str = "majority";
///
///     fn decide(&self, facts: &WaitFacts) -> Verdict {
///         let (all, committed) = (facts.children.len(), facts.count(ChildState::Committed));
///         match () {
///             () if committed * 2 > all => Verdict::GoOn,
///             () if (committed + facts.unfinished()) * 2 <= all => Verdict::GiveUp("no majority is left".into()),
///             () => Verdict::Wait,
///         }
///     }
///
///     fn describe(&self) -> String {
///         "a majority of the handlers".into()
///     }
/// }
///
/// scoop::wait_strategy!(Majority);
/// ```
///
/// The idea is where structured cooperation began: an event loop that asks a strategy whether the children have done enough.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no strategy of a launch",
    label = "not a strategy",
    note = "write `AtLeast(2)`, `Only::these([\"..\"])`, `Without::these([\"..\"])` or `Window::of(..)` of `scoop::wait`, or implement `WaitStrategy`"
)]
pub trait WaitStrategy: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// The stored name. A program with two strategies of one name does not start. No two releases may mean different things by it.
    const NAME: &'static str;

    /// Whether the run goes on by these facts. It must depend on nothing else: it is asked again after a crash, perhaps by
    /// another process.
    fn decide(&self, facts: &WaitFacts) -> Verdict;

    /// Whom it waits for, in a few words that follow "waits for". People read it in lists and trees, also where no program
    /// has the strategy.
    fn describe(&self) -> String;

    /// The mistake in its parameters, if there is one: then the launch fails with it.
    fn mistake(&self) -> Option<String> {
        None
    }

    /// Whether the handlers that are still under way are left to run when the run goes on, in place of being cancelled.
    fn leaves_others(&self) -> bool {
        false
    }

    /// For how long after the launch handlers that register then get the message, too; `None` if they do not.
    fn delivers_late(&self) -> Option<Duration> {
        None
    }

    /// How many further ends of handlers it takes at least until the verdict can be another one. The engine does not ask
    /// before.
    fn ends_needed(&self, facts: &WaitFacts) -> usize {
        let _ = facts;
        1
    }

    /// The same strategy with a limit: when the time is over, and it still waits, the launch has failed.
    fn within(self, limit: Duration) -> WaitPlan
    where
        Self: Sized,
    {
        WaitPlan::from(self).within(limit)
    }

    /// The same strategy, which leaves the handlers that are still under way to run when the run goes on. They stay a part
    /// of the hierarchy, and of its rollback.
    fn leave_others(self) -> WaitPlan
    where
        Self: Sized,
    {
        WaitPlan::from(self).leave_others()
    }
}

/// What a strategy decides by.
#[derive(Clone, Debug, PartialEq)]
pub struct WaitFacts {
    /// The topic of the message.
    pub topic: String,
    /// The message.
    pub message: Uuid,
    /// The handlers of the message, in the order of their names, without those that were dropped.
    pub children: Vec<WaitedChild>,
    /// The time by the clock of the server.
    pub now: OffsetDateTime,
    /// When the limit of the wait is over, if it has one.
    pub until: Option<OffsetDateTime>,
    /// Until when handlers that register get the message, too, if the strategy says so.
    pub late_until: Option<OffsetDateTime>,
}

/// A handler of a message that a run has launched.
#[derive(Clone, Debug, PartialEq)]
pub struct WaitedChild {
    /// The saga.
    pub handler: String,
    /// What became of it so far.
    pub state: ChildState,
    /// Its failure, if it has failed.
    pub failure: Option<Failure>,
}

/// What became of a handler so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildState {
    /// It has not begun.
    Pending,
    /// It has begun, and has not ended.
    Begun,
    /// It has committed.
    Committed,
    /// It has failed, and is rolled back.
    RolledBack,
    /// It has failed, and so has its rollback.
    RollbackFailed,
}

impl ChildState {
    /// Whether it has not ended.
    pub fn is_unfinished(self) -> bool {
        matches!(self, Self::Pending | Self::Begun)
    }
}

/// What a strategy decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The run goes on. The others are cancelled and undone, or left to run.
    GoOn,
    /// The run waits for another handler to end.
    Wait,
    /// The run waits for another handler to end, and the strategy is asked again at this time at the latest.
    /// A time that is over is the same as [`Wait`](Self::Wait).
    WaitUntil(OffsetDateTime),
    /// The handlers that have not begun are dropped. From then on the run waits for the others as it does without a strategy.
    Close,
    /// The launch has failed, for this reason. What is still under way is cancelled and undone; then the step that has
    /// launched the message fails, or its `on_child_failure` decides.
    GiveUp(String),
}

impl WaitFacts {
    /// How many handlers are in this state.
    pub fn count(&self, state: ChildState) -> usize {
        self.children.iter().filter(|child| child.state == state).count()
    }

    /// How many handlers have not ended.
    pub fn unfinished(&self) -> usize {
        self.children.iter().filter(|child| child.state.is_unfinished()).count()
    }

    /// The verdict of a strategy that needs all handlers for which this holds to commit.
    fn all_of(&self, is_awaited: impl Fn(&str) -> bool) -> Verdict {
        let mut awaited = self.children.iter().filter(|child| is_awaited(&child.handler));
        let failed =
            |child: &&WaitedChild| !child.state.is_unfinished() && child.state != ChildState::Committed;
        if let Some(child) = awaited.clone().find(failed) {
            let why = child.failure.as_ref().map_or("", |failure| &failure.message);
            return Verdict::GiveUp(format!("`{}` has failed: {why}", child.handler));
        }
        if awaited.any(|child| child.state.is_unfinished()) { Verdict::Wait } else { Verdict::GoOn }
    }
}

/// Waits for every handler that is registered for the topic when the message is launched. It is what a launch does without
/// another strategy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registered;

impl WaitStrategy for Registered {
    const NAME: &'static str = "registered";

    fn decide(&self, facts: &WaitFacts) -> Verdict {
        match facts.unfinished() {
            0 => Verdict::Close,
            _ => Verdict::Wait,
        }
    }

    fn describe(&self) -> String {
        "all handlers".into()
    }

    fn ends_needed(&self, facts: &WaitFacts) -> usize {
        facts.unfinished()
    }
}

/// Waits until this number of handlers has committed. What is still under way then is cancelled and undone, or left to run
/// with [`leave_others`](WaitStrategy::leave_others).
///
/// ```
/// # extern crate scoop_core as scoop;
/// use std::time::Duration;
/// use scoop::wait::{AtLeast, WaitPlan, WaitStrategy};
///
/// let plan: WaitPlan = AtLeast(2).within(Duration::from_secs(10));
/// assert_eq!(plan.describe(), "at least 2 handlers");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AtLeast(pub usize);

impl WaitStrategy for AtLeast {
    const NAME: &'static str = "at_least";

    fn decide(&self, facts: &WaitFacts) -> Verdict {
        let (committed, possible) = self.counts(facts);
        match () {
            () if committed >= self.0 => Verdict::GoOn,
            () if possible < self.0 => Verdict::GiveUp(format!(
                "of {} handlers {committed} committed, and {} can still commit",
                facts.children.len(),
                facts.unfinished()
            )),
            () => Verdict::Wait,
        }
    }

    fn describe(&self) -> String {
        format!("at least {} handler{}", self.0, if self.0 == 1 { "" } else { "s" })
    }

    fn mistake(&self) -> Option<String> {
        (self.0 == 0).then(|| {
            "at least 0 handlers are no condition: detach the message, and nothing is waited for".into()
        })
    }

    fn ends_needed(&self, facts: &WaitFacts) -> usize {
        let (committed, possible) = self.counts(facts);
        self.0.saturating_sub(committed).min((possible + 1).saturating_sub(self.0)).max(1)
    }
}

impl AtLeast {
    /// How many handlers have committed, and how many can have in the end.
    fn counts(self, facts: &WaitFacts) -> (usize, usize) {
        let committed = facts.count(ChildState::Committed);
        (committed, committed + facts.unfinished())
    }
}

/// Waits for these handlers only, by the names of their sagas. All of them must be among the handlers of the message. The
/// others are left to run.
///
/// ```
/// # extern crate scoop_core as scoop;
/// use scoop::wait::{Only, WaitPlan};
///
/// let plan = WaitPlan::from(Only::these(["ledger"]));
/// assert_eq!(plan.describe(), "`ledger`");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Only(Vec<String>);

impl Only {
    /// Waits for these handlers.
    pub fn these(handlers: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self(handlers.into_iter().map(Into::into).collect())
    }
}

impl WaitStrategy for Only {
    const NAME: &'static str = "only";

    fn decide(&self, facts: &WaitFacts) -> Verdict {
        let is_there = |name: &&String| facts.children.iter().any(|child| child.handler == **name);
        if let Some(absent) = self.0.iter().find(|name| !is_there(name)) {
            return Verdict::GiveUp(format!("`{absent}` is no handler of it, or will not begin"));
        }
        facts.all_of(|handler| self.0.iter().any(|name| name == handler))
    }

    fn describe(&self) -> String {
        in_words(&self.0)
    }

    fn mistake(&self) -> Option<String> {
        self.0.is_empty().then(|| "it names no handler: detach the message, and nothing is waited for".into())
    }

    fn leaves_others(&self) -> bool {
        true
    }
}

/// Waits for all handlers but these, by the names of their sagas, which are left to run.
///
/// ```
/// # extern crate scoop_core as scoop;
/// use scoop::wait::{WaitPlan, Without};
///
/// let plan = WaitPlan::from(Without::these(["analytics", "search"]));
/// assert_eq!(plan.describe(), "all handlers but `analytics` and `search`");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Without(Vec<String>);

impl Without {
    /// Waits for all handlers but these.
    pub fn these(handlers: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self(handlers.into_iter().map(Into::into).collect())
    }
}

impl WaitStrategy for Without {
    const NAME: &'static str = "without";

    fn decide(&self, facts: &WaitFacts) -> Verdict {
        facts.all_of(|handler| self.0.iter().all(|name| name != handler))
    }

    fn describe(&self) -> String {
        format!("all handlers but {}", in_words(&self.0))
    }

    fn mistake(&self) -> Option<String> {
        self.0.is_empty().then(|| "it names no handler: leave the strategy out".into())
    }

    fn leaves_others(&self) -> bool {
        true
    }
}

/// Waits for a time, and then for the handlers that have begun. Handlers that register within that time get the message, too; those that
/// have not begun when it is over are dropped. The launcher need not know beforehand who will take part, as with the passengers of a train.
///
/// ```
/// # extern crate scoop_core as scoop;
/// use std::time::Duration;
/// use scoop::wait::{WaitPlan, Window};
///
/// let plan = WaitPlan::from(Window::of(Duration::from_secs(300)));
/// assert_eq!(plan.describe(), "the handlers that begin within 300s");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    millis: u64,
}

impl Window {
    /// A window of this length, in whole milliseconds.
    pub fn of(length: Duration) -> Self {
        Self { millis: u64::try_from(length.as_millis()).unwrap_or(u64::MAX) }
    }

    fn length(self) -> Duration {
        Duration::from_millis(self.millis)
    }
}

impl WaitStrategy for Window {
    const NAME: &'static str = "window";

    fn decide(&self, facts: &WaitFacts) -> Verdict {
        match facts.late_until.filter(|end| *end > facts.now) {
            Some(end) => Verdict::WaitUntil(end),
            None => Verdict::Close,
        }
    }

    fn describe(&self) -> String {
        format!("the handlers that begin within {:?}", self.length())
    }

    fn mistake(&self) -> Option<String> {
        (self.millis == 0).then(|| "a window of no length has no handler in it".into())
    }

    fn delivers_late(&self) -> Option<Duration> {
        Some(self.length())
    }

    fn ends_needed(&self, _: &WaitFacts) -> usize {
        usize::MAX
    }
}

fn in_words(names: &[String]) -> String {
    let quoted: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    match quoted.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
        None => "none".into(),
    }
}

/// A strategy with its parameters, as it is stored with a launch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitPlan {
    strategy: String,
    /// Its parameters.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    with: Value,
    /// Whom it waits for, in words.
    says: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    leaves_others: bool,
    /// The limit, by the clock of the server.
    #[serde(default, with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    until: Option<OffsetDateTime>,
    /// Until when handlers that register get the message, too.
    #[serde(default, with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    late_until: Option<OffsetDateTime>,
    #[serde(default, with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    late_give_up_at: Option<OffsetDateTime>,
    /// The limit, counted from the launch.
    #[serde(skip)]
    within: Option<Duration>,
    #[serde(skip)]
    delivers_late: Option<Duration>,
    #[serde(skip)]
    mistake: Option<String>,
}

impl<S: WaitStrategy> From<S> for WaitPlan {
    fn from(strategy: S) -> Self {
        let with = serde_json::to_value(&strategy);
        let mistake = strategy.mistake().or_else(|| with.as_ref().err().map(ToString::to_string));
        Self {
            strategy: S::NAME.to_owned(),
            with: with.unwrap_or_default(),
            says: strategy.describe(),
            leaves_others: strategy.leaves_others(),
            until: None,
            late_until: None,
            late_give_up_at: None,
            within: None,
            delivers_late: strategy.delivers_late(),
            mistake,
        }
    }
}

impl WaitPlan {
    /// The same plan with a limit, counted from the launch.
    #[must_use]
    pub fn within(self, limit: Duration) -> Self {
        Self { within: Some(limit), ..self }
    }

    /// The same plan, which leaves the handlers that are still under way to run when the run goes on.
    #[must_use]
    pub fn leave_others(self) -> Self {
        Self { leaves_others: true, ..self }
    }

    /// Whom it waits for, in words.
    pub fn describe(&self) -> &str {
        &self.says
    }

    /// The stored name of its strategy.
    pub fn strategy(&self) -> &str {
        &self.strategy
    }

    /// Whether the handlers that are still under way are left to run.
    pub fn leaves_others(&self) -> bool {
        self.leaves_others
    }

    /// When the limit is over, of a plan that was stored with a launch.
    pub fn until(&self) -> Option<OffsetDateTime> {
        self.until
    }

    /// Until when handlers that register get the message, too, of a plan that was stored with a launch.
    pub fn late_until(&self) -> Option<OffsetDateTime> {
        self.late_until
    }

    /// When the handlers that get the message late have to give up.
    #[doc(hidden)]
    pub fn late_give_up_at(&self) -> Option<OffsetDateTime> {
        self.late_give_up_at
    }

    /// The limit, counted from the launch, and for how long handlers that register get the message, too.
    #[doc(hidden)]
    pub fn times(&self) -> (Option<Duration>, Option<Duration>) {
        (self.within, self.delivers_late)
    }

    /// The mistake in its parameters.
    #[doc(hidden)]
    pub fn mistake(&self) -> Option<&str> {
        self.mistake.as_deref()
    }

    /// Whether it is what a launch does without a strategy.
    #[doc(hidden)]
    pub fn is_default(&self) -> bool {
        self.strategy == Registered::NAME && self.within.is_none()
    }

    /// The same plan, to be stored with a launch, with the times at which its limit and its late deliveries end.
    #[doc(hidden)]
    #[must_use]
    pub fn stored(self, until: Option<OffsetDateTime>, late_until: Option<OffsetDateTime>) -> Self {
        Self { until, late_until, within: None, delivers_late: None, mistake: None, ..self }
    }

    /// The same plan, whose late handlers have to give up by the earliest of these times.
    #[doc(hidden)]
    #[must_use]
    pub fn with_deadlines(self, deadlines: Vec<OffsetDateTime>) -> Self {
        let late_give_up_at = deadlines.into_iter().min().filter(|_| self.late_until.is_some());
        Self { late_give_up_at, ..self }
    }

    /// The verdict by these facts, and how many further ends it takes until another one.
    ///
    /// # Errors
    ///
    /// If this program does not have the strategy, or cannot read its parameters.
    #[doc(hidden)]
    pub fn decide(&self, facts: &WaitFacts) -> Result<(Verdict, usize), String> {
        let known = inventory::iter::<RegisteredStrategy>().find(|known| known.name == self.strategy);
        let known = known.ok_or_else(|| {
            format!(
                "the run waits by the strategy `{0}` ({1}), which this program does not have; a program with \
                 `scoop::wait_strategy!` of it can continue the run",
                self.strategy, self.says
            )
        })?;
        let (verdict, ends) = (known.decide)(&self.with, facts).map_err(|error| {
            format!(
                "the run waits by the strategy `{}`, whose parameters this program cannot read: {error}",
                self.strategy
            )
        })?;
        let is_over = self.until.is_some_and(|until| until <= facts.now);
        let verdict = match verdict {
            // A time that is over would make the run ready again at once.
            Verdict::WaitUntil(at) if at <= facts.now => Verdict::Wait,
            verdict => verdict,
        };
        let verdict = match verdict {
            Verdict::Wait | Verdict::WaitUntil(_) if is_over => {
                Verdict::GiveUp(format!("not within the limit; {}", facts.summary()))
            }
            // Nothing would ask it again.
            Verdict::Wait if facts.unfinished() == 0 => {
                Verdict::GiveUp(format!("all handlers have ended, and it waits; {}", facts.summary()))
            }
            verdict => verdict,
        };
        Ok((verdict, ends))
    }
}

impl WaitFacts {
    fn summary(&self) -> String {
        let (all, committed, unfinished) =
            (self.children.len(), self.count(ChildState::Committed), self.unfinished());
        format!("of {all} handlers {committed} committed, and {unfinished} are under way")
    }
}

/// A strategy of the linked program.
#[doc(hidden)]
pub struct RegisteredStrategy {
    name: &'static str,
    decide: fn(&Value, &WaitFacts) -> serde_json::Result<(Verdict, usize)>,
}

inventory::collect!(RegisteredStrategy);

impl RegisteredStrategy {
    /// The registration of `S`.
    pub const fn of<S: WaitStrategy>() -> Self {
        Self {
            name: S::NAME,
            decide: |with, facts| {
                let strategy = S::deserialize(with)?;
                Ok((strategy.decide(facts), strategy.ends_needed(facts)))
            },
        }
    }
}

/// Has programs find a [`WaitStrategy`] by its name. Each program needs it whose sagas launch with the strategy.
#[macro_export]
macro_rules! wait_strategy {
    ($strategy:ty) => {
        $crate::__inventory::submit! { $crate::wait::RegisteredStrategy::of::<$strategy>() }
        $crate::__inventory::submit! { $crate::NamedType::wait_strategy::<$strategy>() }
    };
}

crate::wait_strategy!(Registered);
crate::wait_strategy!(AtLeast);
crate::wait_strategy!(Only);
crate::wait_strategy!(Without);
crate::wait_strategy!(Window);

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(states: &[(&str, ChildState)]) -> WaitFacts {
        let child = |(handler, state): &(&str, ChildState)| WaitedChild {
            handler: (*handler).to_owned(),
            state: *state,
            failure: (*state == ChildState::RolledBack).then(|| Failure::new("T", "none left", "saga[w]")),
        };
        WaitFacts {
            topic: "quotes".into(),
            message: Uuid::nil(),
            children: states.iter().map(child).collect(),
            now: OffsetDateTime::UNIX_EPOCH,
            until: None,
            late_until: None,
        }
    }

    fn decided(plan: impl Into<WaitPlan>, states: &[(&str, ChildState)]) -> (Verdict, usize) {
        plan.into().decide(&facts(states)).expect("the strategy is known")
    }

    use ChildState::{Begun, Committed, Pending, RolledBack};

    #[test]
    fn at_least_decides_as_soon_as_it_can_and_knows_how_many_ends_that_takes() {
        let all = |states: [ChildState; 4]| -> Vec<_> { states.iter().map(|state| ("a", *state)).collect() };
        let at_least = |count, states| decided(AtLeast(count), &all(states));
        assert_eq!(at_least(2, [Begun; 4]), (Verdict::Wait, 2));
        assert_eq!(at_least(4, [Begun; 4]), (Verdict::Wait, 1));
        assert_eq!(at_least(2, [Committed, Begun, Pending, RolledBack]), (Verdict::Wait, 1));
        assert_eq!(at_least(2, [Committed, Committed, Pending, RolledBack]).0, Verdict::GoOn);
        let reason = "of 4 handlers 1 committed, and 1 can still commit";
        assert_eq!(at_least(3, [Committed, Begun, RolledBack, RolledBack]).0, Verdict::GiveUp(reason.into()));
    }

    #[test]
    fn named_handlers_decide_and_others_do_not() {
        let states = [("ledger", Committed), ("mail", RolledBack), ("search", Begun)];
        let only = |names: &[&str]| decided(Only::these(names.iter().copied()), &states).0;
        assert_eq!(only(&["ledger"]), Verdict::GoOn);
        assert_eq!(only(&["ledger", "search"]), Verdict::Wait);
        assert_eq!(only(&["ledger", "mail"]), Verdict::GiveUp("`mail` has failed: none left".into()));
        assert_eq!(only(&["shop"]), Verdict::GiveUp("`shop` is no handler of it, or will not begin".into()));
        assert_eq!(decided(Without::these(["mail", "search"]), &states).0, Verdict::GoOn);
        assert_eq!(decided(Without::these(["mail"]), &states).0, Verdict::Wait);
    }

    /// Asks to be asked again this many seconds after the epoch.
    #[derive(Serialize, Deserialize)]
    struct AskedAt(u64);

    impl WaitStrategy for AskedAt {
        const NAME: &'static str = "asked_at";

        fn decide(&self, _: &WaitFacts) -> Verdict {
            Verdict::WaitUntil(OffsetDateTime::UNIX_EPOCH + Duration::from_secs(self.0))
        }

        fn describe(&self) -> String {
            "a time".into()
        }
    }

    crate::wait_strategy!(AskedAt);

    #[test]
    fn time_to_ask_again_that_is_over_is_no_reason_to_ask_at_once() {
        let one_second = OffsetDateTime::UNIX_EPOCH + Duration::from_secs(1);
        assert_eq!(decided(AskedAt(1), &[("a", Begun)]).0, Verdict::WaitUntil(one_second));
        assert_eq!(decided(AskedAt(0), &[("a", Begun)]).0, Verdict::Wait);
        let over = "all handlers have ended, and it waits; of 1 handlers 1 committed, and 0 are under way";
        assert_eq!(decided(AskedAt(0), &[("a", Committed)]).0, Verdict::GiveUp(over.into()));
    }

    #[test]
    fn limit_that_is_over_ends_every_wait() {
        let stored =
            |until| WaitPlan::from(Registered).within(Duration::from_secs(1)).stored(Some(until), None);
        let now = OffsetDateTime::UNIX_EPOCH;
        let states = [("a", Begun), ("b", Committed)];
        assert_eq!(decided(stored(now + Duration::from_secs(1)), &states).0, Verdict::Wait);
        let over =
            Verdict::GiveUp("not within the limit; of 2 handlers 1 committed, and 1 are under way".into());
        assert_eq!(decided(stored(now), &states).0, over);
        assert_eq!(decided(stored(now), &[("a", Committed)]).0, Verdict::Close);
    }

    #[test]
    fn stored_plan_is_read_back_and_an_unknown_strategy_is_named() {
        let plan = AtLeast(2).leave_others().stored(Some(OffsetDateTime::UNIX_EPOCH), None);
        let stored = serde_json::to_value(&plan).unwrap();
        assert_eq!(stored["strategy"], "at_least");
        assert_eq!(stored["with"], 2);
        assert_eq!(serde_json::from_value::<WaitPlan>(stored).unwrap(), plan);
        let unknown = WaitPlan { strategy: "theirs".into(), ..plan };
        let why = unknown.decide(&facts(&[])).unwrap_err();
        assert!(why.starts_with("the run waits by the strategy `theirs` (at least 2 handlers)"), "{why}");
    }

    #[test]
    fn mistaken_plans_say_so_and_the_default_is_none() {
        let mistakes = [
            WaitPlan::from(AtLeast(0)),
            WaitPlan::from(Only::these([""; 0])),
            WaitPlan::from(Without::these([""; 0])),
            WaitPlan::from(Window::of(Duration::ZERO)),
        ];
        assert!(mistakes.iter().all(|plan| plan.mistake().is_some()));
        assert!(WaitPlan::from(Registered).is_default());
        assert!(!WaitPlan::from(Registered).within(Duration::from_secs(1)).is_default());
    }
}
