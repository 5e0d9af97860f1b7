//! Waiting, sleeping, retries, cleanup, and values that may be missing.
#![forbid(unsafe_code)]
#![deny(warnings, missing_docs, unreachable_pub, clippy::all)]

use std::time::{Duration, SystemTime};

use scoop::prelude::*;
use scoop::{RetryTarget, Step, StepKind};

#[derive(Message, Serialize, Deserialize)]
struct OrderPlaced {
    due: SystemTime,
}

#[derive(Serialize, Deserialize)]
struct Payment(u32);

#[derive(Serialize, Deserialize)]
struct Draft(Vec<String>);

struct Checkout;

#[saga]
#[subscribes(OrderPlaced)]
impl Checkout {
    #[step(sleep = "2 days", timeout = "1 minute", rollback = forget, rollback_retry(max = 3, backoff = "5s"))]
    async fn refine(
        &self,
        scope: &mut Scope<'_>,
        _: &OrderPlaced,
        last: Option<&Draft>,
        paid: Option<&Payment>,
    ) -> Result<With<CheckoutStep, Draft>> {
        let mut lines = last.map_or_else(Vec::new, |last| last.0.clone());
        lines.push(paid.map_or_else(String::new, |paid| paid.0.to_string()));
        let next = match scope.iteration() {
            0 => Next::Repeat,
            1 => Next::goto(CheckoutStep::Ship),
            _ => Next::Continue,
        };
        Ok(next.with(Draft(lines)))
    }

    #[step(at = noon, finally = close, rollback = refund, on_child_failure = ignore)]
    async fn charge(
        &self,
        _: &mut Scope<'_>,
        _: &OrderPlaced,
        draft: &Draft,
        _: std::option::Option<&'_ Draft>,
    ) -> Result<Payment> {
        Ok(Payment(draft.0.len().try_into()?))
    }

    #[step(
        retry(max = 1_000_000, backoff = "100ms..30s", jitter = 0.0, when = is_transient),
        finally = close,
        name = "post"
    )]
    async fn ship(&self, _: &mut Scope<'_>, _: &OrderPlaced, _: Option<&Payment>) -> Result<()> {
        Ok(())
    }

    #[step(retry(max = 1, jitter = 1.0, when = elsewhere::is_worth_it), at = noon)]
    async fn thank(&self, _: &mut Scope<'_>, _: &OrderPlaced) -> Result<Next<CheckoutStep>> {
        Ok(Next::goto(CheckoutStep::Refine))
    }

    async fn noon(&self, _: &mut Scope<'_>, order: &OrderPlaced, _: &Draft) -> Result<SystemTime> {
        Ok(order.due)
    }

    async fn close(
        &self,
        _: &mut Scope<'_>,
        _: &OrderPlaced,
        paid: Option<&Payment>,
        _: &Draft,
    ) -> Result<()> {
        println!("{}", paid.is_some());
        Ok(())
    }

    async fn forget(
        &self,
        _: &mut Scope<'_>,
        _: &OrderPlaced,
        _: Option<&Payment>,
        _: &Failure,
    ) -> Result<()> {
        Ok(())
    }

    async fn refund(
        &self,
        _: &mut Scope<'_>,
        _: &OrderPlaced,
        _: &Payment,
        _: &Failure,
    ) -> Result<()> {
        Ok(())
    }

    async fn ignore(
        &self,
        _: &mut Scope<'_>,
        _: &OrderPlaced,
        _: Option<&Payment>,
        _: &Failure,
    ) -> Result<()> {
        Ok(())
    }

    fn is_transient(error: &Error) -> bool {
        !error.is_permanent()
    }
}

mod elsewhere {
    pub(super) fn is_worth_it(_: &scoop::Error) -> bool {
        true
    }
}

/// All steps and compensations that can be retried are.
struct Stubborn;

#[saga]
#[subscribes(OrderPlaced)]
impl Stubborn {
    #[step(retry(max = 1, when = what), rollback = undo, rollback_retry(max = 2, when = step), at = now, finally = end)]
    async fn only(&self, _: &mut Scope<'_>, _: &OrderPlaced) -> Result<()> {
        Ok(())
    }

    async fn undo(&self, _: &mut Scope<'_>, _: &OrderPlaced, _: &Failure) -> Result<()> {
        Ok(())
    }

    async fn now(&self, _: &mut Scope<'_>, _: &OrderPlaced) -> Result<SystemTime> {
        Ok(SystemTime::now())
    }

    async fn end(&self, _: &mut Scope<'_>, _: &OrderPlaced) -> Result<()> {
        Ok(())
    }
}

fn what(error: &Error) -> bool {
    step(error)
}

fn step(error: &Error) -> bool {
    error.is_permanent()
}

#[derive(Clone, Message, Serialize, Deserialize)]
struct Feed {
    cursor: u32,
}

struct Reader;

#[saga]
#[subscribes(Feed)]
impl Reader {
    #[step(sleep = "1m", rollback = back, on_child_failure = ignore_all, retry(max = 2))]
    async fn poll(
        &self,
        _: &mut Scope<'_>,
        feed: &Feed,
    ) -> Result<scoop::ContinueAsNew<ReaderStep, self::Feed>> {
        match feed.cursor {
            0 => Ok(Next::continue_as_new(Feed { cursor: 1 })),
            1 => Ok(Next::goto(ReaderStep::Poll).into()),
            _ => Ok(Next::Continue.into()),
        }
    }

    async fn back(&self, _: &mut Scope<'_>, _: &Feed, _: &Failure) -> Result<()> {
        Ok(())
    }

    async fn ignore_all(&self, _: &mut Scope<'_>, _: &Feed, _: &Failure) -> Result<()> {
        Ok(())
    }
}

pub(crate) fn main() {
    use CheckoutStep::{Charge, Refine, Ship, Thank};

    let definition = Checkout::DEFINITION;
    definition.check().unwrap();
    let steps: Vec<_> = definition
        .steps
        .iter()
        .map(|step| (&*step.name, step.kind))
        .collect();
    assert_eq!(
        steps,
        [
            ("refine", StepKind::Code),
            ("charge (waiting for scheduled time)", StepKind::Wait),
            ("charge", StepKind::Code),
            ("charge (finally)", StepKind::Finally),
            ("post", StepKind::Code),
            ("post (finally)", StepKind::Finally),
            ("thank (waiting for scheduled time)", StepKind::Wait),
            ("thank", StepKind::Code),
        ]
    );
    let compensated: Vec<_> = definition
        .steps
        .iter()
        .map(|step| step.compensated)
        .collect();
    assert_eq!(
        compensated,
        [true, false, true, false, false, false, false, false]
    );
    let handling = definition
        .steps
        .iter()
        .position(|step| step.handles_child_failure);
    assert_eq!(handling, Some(2));

    assert_eq!(
        CheckoutStep::ALL,
        [Refine, Charge, Charge, Charge, Ship, Ship, Thank, Thank]
    );
    assert_eq!([Refine, Charge, Ship, Thank].map(Step::index), [0, 1, 4, 6]);

    assert_eq!(
        Checkout::sleep(Refine),
        Some(Duration::from_secs(2 * 24 * 3600))
    );
    assert_eq!(Checkout::sleep(Charge), None);
    assert_eq!(Checkout::timeout(Refine), Some(Duration::from_secs(60)));

    let retry = |step, what| Checkout::retry(step, what).map(|retry| format!("{retry:?}"));
    assert_eq!(retry(Refine, RetryTarget::Step), None);
    let forget = retry(Refine, RetryTarget::Compensation).unwrap();
    assert!(
        forget.contains("max: 3, first: 5s, longest: 5s, jitter_percent: 20, worth: None"),
        "{forget}"
    );
    let ship = retry(Ship, RetryTarget::Step).unwrap();
    assert!(
        ship.contains("max: 1000000, first: 100ms, longest: 30s, jitter_percent: 0, worth: Some"),
        "{ship}"
    );
    assert_eq!(retry(Ship, RetryTarget::Compensation), None);
    let thank = retry(Thank, RetryTarget::Step).unwrap();
    assert!(
        thank.contains("jitter_percent: 100, worth: Some"),
        "{thank}"
    );

    assert!(Stubborn::retry(StubbornStep::Only, RetryTarget::Compensation).is_some());
    assert_eq!(Reader::sleep(ReaderStep::Poll), Some(Duration::from_secs(60)));
    let _ = (Checkout, Stubborn, Reader);
}
