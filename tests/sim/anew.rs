//! A simulation of runs that continue as new: no execution is lost or begins twice, each has its message and none of the
//! values before it, and a rollback ends at the beginning of the execution that failed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use scoop::prelude::*;
use scoop::{Builder, EventKind, Handle, LoggedEvent, Outcome};
use uuid::Uuid;

use crate::crew::{Crew, Fate, Small};
use crate::judge::{audited, small_log};

/// The number of messages from outside.
const FEEDS: u32 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Message, Serialize, Deserialize)]
#[message(topic = "anew.feed")]
struct Feed {
    /// The number of the execution.
    cursor: u32,
    /// The number of executions.
    count: u32,
    /// The pause before each execution, in ms.
    sleeps: u32,
    launches: bool,
    end: End,
}

/// What the last execution does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum End {
    Commits,
    /// It fails in its first or its last step.
    Fails(bool),
}

#[derive(Clone, Copy, Message, Serialize, Deserialize)]
#[message(topic = "anew.article")]
struct Article;

/// A message whose handler launches the first message of a reader, waits for it, and perhaps fails.
#[derive(Clone, Copy, Message, Serialize, Deserialize)]
#[message(topic = "anew.subscription")]
struct Subscribed {
    feed: Feed,
    fails: bool,
}

/// The value of the first step: the number of its execution.
#[derive(Debug, Serialize, Deserialize)]
struct Fetched(u32);

/// The compensations that were called, by run: the number of the execution in the message, and in the value.
type Undone = Arc<Mutex<Vec<(Uuid, u32, u32)>>>;

/// What the code saw that it must not see, by the name of the run.
type Complaints = Arc<Mutex<Vec<String>>>;

#[derive(Clone)]
struct Reader(Undone, Complaints);

impl Reader {
    fn complain(&self, what: String) {
        self.1.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }
}

#[saga(name = "anew-reader")]
#[subscribes(Feed)]
impl Reader {
    #[step(rollback = forget)]
    async fn fetch(&self, scope: &mut Scope<'_>, feed: &Feed, turned: Option<&Turned>) -> Result<Fetched> {
        if turned.is_some() || scope.iteration() != 0 {
            self.complain(format!("anew: {feed:?} begins with {turned:?}"));
        }
        if feed.launches {
            scope.launch(Article).await?;
        }
        if feed.cursor + 1 == feed.count && feed.end == End::Fails(true) {
            return Err(Error::msg(crate::act::PLANNED));
        }
        Ok(Fetched(feed.cursor))
    }

    #[step]
    async fn turn(&self, _: &mut Scope<'_>, feed: &Feed, fetched: &Fetched) -> Result<Turned> {
        if fetched.0 != feed.cursor {
            self.complain(format!("anew: {feed:?} has {fetched:?}"));
        }
        Ok(Turned)
    }

    #[step]
    async fn go_on(&self, scope: &mut Scope<'_>, feed: &Feed) -> Result<ContinueAsNew<ReaderStep, Feed>> {
        if feed.cursor + 1 < feed.count {
            if feed.sleeps > 0 {
                scope.sleep(Duration::from_millis(feed.sleeps.into())).await?;
            }
            return Ok(Next::continue_as_new(Feed { cursor: feed.cursor + 1, ..*feed }));
        }
        if feed.end == End::Fails(false) {
            return Err(Error::msg(crate::act::PLANNED));
        }
        Ok(Next::Continue.into())
    }

    async fn forget(&self, scope: &mut Scope<'_>, feed: &Feed, fetched: &Fetched, _: &Failure) -> Result<()> {
        let undone = (scope.lineage().id(), feed.cursor, fetched.0);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(undone);
        Ok(())
    }
}

/// The value of the second step.
#[derive(Debug, Serialize, Deserialize)]
struct Turned;

#[derive(Default)]
struct Library;

#[saga(name = "anew-library")]
#[subscribes(Article)]
impl Library {
    #[step(rollback = remove)]
    async fn add(&self, _: &mut Scope<'_>, _: &Article) -> Result<()> {
        Ok(())
    }

    async fn remove(&self, _: &mut Scope<'_>, _: &Article, _: &Failure) -> Result<()> {
        Ok(())
    }
}

#[derive(Default)]
struct Subscriber;

#[saga(name = "anew-subscriber")]
#[subscribes(Subscribed)]
impl Subscriber {
    #[step(rollback = cancel)]
    async fn subscribe(&self, scope: &mut Scope<'_>, subscribed: &Subscribed) -> Result<()> {
        scope.launch(subscribed.feed).await?;
        Ok(())
    }

    #[step]
    async fn end(&self, _: &mut Scope<'_>, subscribed: &Subscribed) -> Result<()> {
        if subscribed.fails { Err(Error::msg(crate::act::PLANNED)) } else { Ok(()) }
    }

    async fn cancel(&self, _: &mut Scope<'_>, _: &Subscribed, _: &Failure) -> Result<()> {
        Ok(())
    }
}

struct Launched {
    feed: Feed,
    /// Whether the saga above fails.
    fails_above: bool,
    handle: Handle,
    is_cancelled: bool,
}

struct World {
    crew: Crew,
    undone: Undone,
    complaints: Complaints,
}

impl World {
    fn program(&self) -> impl Fn(Builder) -> Builder + Send + 'static {
        let reader = Reader(self.undone.clone(), self.complaints.clone());
        move |builder: Builder| {
            builder.only::<Reader>().only::<Library>().only::<Subscriber>().provide(reader.clone())
        }
    }

    fn start(&mut self, fate: Fate) {
        let program = self.program();
        self.crew.start(fate, program);
    }

    async fn play(mut self) -> Result<Vec<String>> {
        self.crew.register(self.program()).await?;
        self.start(Fate::Lives);
        let client = self.crew.client().await?;
        let (mut launched, mut wrong): (Vec<Launched>, _) = (vec![], vec![]);
        for _ in 0..FEEDS {
            let fate = self.crew.fate();
            if self.crew.dice.percent(50) {
                self.start(fate);
            }
            self.crew.pause(80).await;
            let one = self.launch(&client).await?;
            launched.push(one);
            self.crew.pause(80).await;
            if self.crew.dice.percent(15) {
                let nth = self.crew.dice.below(u32::try_from(launched.len()).unwrap_or(1)) as usize;
                launched[nth].is_cancelled = true;
                client.cancel(launched[nth].handle.id(), crate::act::PLANNED).await?;
            }
            if self.crew.dice.percent(20) {
                wrong.extend(self.crew.violations());
            }
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
        self.crew.heal();
        self.start(Fate::Lives);
        for one in &launched {
            wrong.extend(self.judge(one).await?);
        }
        wrong.append(&mut self.complaints.lock().unwrap_or_else(PoisonError::into_inner));
        wrong.extend(self.crew.violations());
        let definitions = [Reader::DEFINITION, Library::DEFINITION, Subscriber::DEFINITION];
        wrong.extend(audited(&small_log(&self.crew.database), &definitions));
        Ok(wrong)
    }

    async fn launch(&mut self, client: &Scoop) -> Result<Launched> {
        let dice = &mut self.crew.dice;
        let end = match dice.below(10) {
            0..=1 => End::Fails(true),
            2..=3 => End::Fails(false),
            _ => End::Commits,
        };
        let sleeps = if dice.percent(50) { 0 } else { dice.below(60) };
        let (count, launches, is_below) = (dice.between(1, 6), dice.percent(50), dice.percent(50));
        let fails_above = is_below && dice.percent(30);
        let feed = Feed { cursor: 0, count, sleeps, launches, end };
        let handle = if is_below {
            client.launch(Subscribed { feed, fails: fails_above }).await?
        } else {
            client.launch(feed).await?
        };
        Ok(Launched { feed, fails_above, handle, is_cancelled: false })
    }

    /// Waits for the end. Returns what is wrong with it.
    async fn judge(&self, launched: &Launched) -> Result<Vec<String>> {
        let Launched { feed, fails_above, handle, is_cancelled } = launched;
        let Ok(outcome) = tokio::time::timeout(Duration::from_secs(600), handle.wait()).await else {
            return Ok(vec![format!("I7: hierarchy {} does not end", handle.id())]);
        };
        let (outcome, mut wrong) = (outcome?, vec![]);
        let fails = feed.end != End::Commits || *fails_above;
        let is_expected = match &outcome {
            Outcome::Committed => !fails,
            Outcome::RolledBack(_) => fails || *is_cancelled,
            _ => false,
        };
        if !is_expected {
            wrong.push(format!("outcome: {feed:?} ends with {outcome}"));
        }
        let log = self.crew.database.event_log_of(handle.id().uuid());
        let own = || log.iter().filter(|event| event.handler.as_deref() == Some("anew-reader"));
        let suspended = |step: &'static str| {
            let is = move |event: &&LoggedEvent| {
                event.kind == EventKind::Suspended && event.step.as_deref() == Some(step)
            };
            own().filter(is).count()
        };
        let executions = own().filter(|event| event.continues_as_new).count();
        let (count, complete) = (feed.count as usize, outcome == Outcome::Committed);
        // The last execution may have failed in its first step.
        let fetched = if feed.end == End::Fails(true) { count - 1 } else { count };
        let is_whole = executions + 1 == count && suspended("fetch") == fetched;
        if !is_whole && (complete || !*is_cancelled) {
            let fetched = suspended("fetch");
            wrong.push(format!("anew: {feed:?} had {executions} executions and {fetched} first steps"));
        }
        wrong.extend(self.undone(own().find(|event| event.kind == EventKind::Seen), executions));
        Ok(wrong)
    }

    /// Only the last execution may have been undone, with its own message and value.
    fn undone(&self, seen: Option<&LoggedEvent>, executions: usize) -> Vec<String> {
        let Some(run) = seen.map(|seen| seen.lineage.id()) else {
            return vec![];
        };
        let undone = self.undone.lock().unwrap_or_else(PoisonError::into_inner);
        let of_run = undone.iter().filter(|(of, ..)| *of == run);
        let mut cursors = BTreeMap::<(u32, u32), u32>::new();
        of_run.for_each(|(_, of_message, of_value)| {
            *cursors.entry((*of_message, *of_value)).or_default() += 1;
        });
        let is_last = |cursor: u32| usize::try_from(cursor).is_ok_and(|cursor| cursor == executions);
        let wrong = cursors.keys().filter(|(message, value)| !is_last(*message) || message != value);
        wrong.map(|it| format!("anew: {it:?} is undone in execution {executions}")).collect()
    }
}

pub(crate) const CONTINUE_AS_NEW: Small = Small {
    name: "anew",
    play: |crew| World { crew, undone: Undone::default(), complaints: Complaints::default() }.play().boxed(),
};
