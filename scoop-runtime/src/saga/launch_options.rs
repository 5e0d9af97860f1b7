//! Options of a launch: context elements, deadlines and a delay.

use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use scoop_core::wait::WaitPlan;
use scoop_core::{
    Context, ContextError, ContextKey, Deadline, DeadlineKind, Priority, SleepUntil, TraceContext,
};
use time::OffsetDateTime;

use crate::error::ErrorKind;
use crate::store::Store;
use crate::telemetry::trace::{self, with_trace};
use crate::util::payload::{self, StepName};
use crate::util::retries::{GivenUp, Retries};
use crate::{RuntimeError, When};

/// The options of one launch.
#[derive(Default)]
pub(crate) struct Options {
    elements: Vec<Element>,
    deadlines: Vec<(DeadlineKind, When)>,
    /// The source of the deadlines, for failures.
    source: Option<String>,
    not_before: Option<When>,
    /// Whether the launch fails without a handler.
    pub(crate) required: bool,
    /// The trace that the handlers of the message continue, if it is not that of the current span.
    pub(crate) trace: Option<TraceContext>,
}

type Element = Box<dyn FnOnce(&mut Context) -> Result<(), ContextError> + Send>;

impl Options {
    pub(crate) fn with<K: ContextKey>(&mut self, element: K) {
        self.elements.push(Box::new(move |context| context.set(element)));
    }

    pub(crate) fn priority(&mut self, priority: Priority) {
        self.elements.push(Box::new(move |context| {
            // Also if there is another value that cannot be read.
            context.remove(Priority::KEY);
            match priority {
                Priority::Normal => Ok(()),
                Priority::Low | Priority::High => context.set(priority),
            }
        }));
    }

    pub(crate) fn deadline(&mut self, kind: DeadlineKind, when: When) {
        self.deadlines.push((kind, when));
    }

    pub(crate) fn source(&mut self, source: String) {
        self.source = Some(source);
    }

    pub(crate) fn not_before(&mut self, when: When) {
        self.not_before = Some(when);
    }

    pub(crate) fn trace_headers(&mut self, traceparent: Option<&str>, tracestate: Option<&str>) {
        self.trace = trace::of_headers(traceparent, tracestate);
    }

    /// The deadlines of the forward path that the launch itself sets.
    pub(crate) fn forward_deadlines(&self) -> Vec<When> {
        let of_forward = self.deadlines.iter().filter(|(kind, _)| *kind != DeadlineKind::Rollback);
        of_forward.map(|(_, when)| *when).collect()
    }

    /// The context with which the handlers of the message start. `base` is the context of the launching step or
    /// client, and `launcher` names it. Deadlines and delays need the clock of the server; reading it is retried for
    /// as long as `retry_for` lasts.
    pub(crate) fn context<'a>(
        self,
        base: Context,
        launcher: &'a str,
        store: &'a Store,
        retry_for: Duration,
        limit: usize,
    ) -> BoxFuture<'a, Result<Context, RuntimeError>> {
        async move {
            let mut context = base;
            for element in self.elements {
                element(&mut context)?;
            }
            if !self.deadlines.is_empty() || self.not_before.is_some() {
                let now = Retries::new(retry_for).run(|_| store.now()).await;
                let now = now.map_err(GivenUp::error("the clock was read"))?;
                let source = self.source.as_deref().unwrap_or(launcher);
                for (kind, when) in self.deadlines {
                    context.tighten(
                        kind,
                        Deadline::new(when.instant(now.earliest)?, source.replace('\0', "")),
                    )?;
                }
                if let Some(when) = self.not_before {
                    context.set(SleepUntil::new(when.instant(now.latest)?))?;
                }
            }
            check_context_size(limit, &context)?;
            Ok(with_trace(context, self.trace.or_else(trace::current).as_ref(), limit))
        }
        .boxed()
    }
}

/// The strategy of a launch with these deadlines as it is stored, with the time at which its limit is over.
pub(crate) async fn stored_wait(
    plan: WaitPlan,
    deadlines: Vec<When>,
    StepName { saga, step }: StepName<'_>,
    topic: &str,
    store: &Store,
    bytes_max: usize,
) -> Result<WaitPlan, scoop_core::Error> {
    let refused = |why: &str| {
        let strategy = plan.strategy();
        scoop_core::Error::msg(format!(
            "saga `{saga}`, step `{step}`: a message for topic `{topic}` cannot be waited for by the strategy `{strategy}`: {why}"
        ))
        .into_permanent()
    };
    if let Some(mistake) = plan.mistake() {
        return Err(refused(mistake));
    }
    payload::storable(serde_json::to_value(&plan)?, bytes_max, || "it".into())
        .map_err(|error| refused(&error.to_string()))?;
    let (limit, late) = plan.times();
    if limit.is_some() && late.is_some() {
        return Err(refused("a window has its own end, and no other limit"));
    }
    if limit.is_none() && late.is_none() {
        return Ok(plan.stored(None, None));
    }
    let now = Retries::new(Duration::ZERO).run(|_| store.now()).await;
    let now = now.map_err(GivenUp::error("the clock was read"))?;
    let time = |after: Option<Duration>| after.map(|after| When::In(after).instant(now.latest)).transpose();
    let (until, late_until) = (time(limit)?, time(late)?);
    for deadline in deadlines {
        if until
            .max(late_until)
            .is_some_and(|until| deadline.instant(now.earliest).is_ok_and(|at| at < until))
        {
            return Err(refused("its limit is later than the deadline of this launch"));
        }
    }
    Ok(plan.stored(until, late_until))
}

/// The time of a sleep, by the clock of the server.
pub(crate) fn wake_up_time(when: When, store: &Store) -> BoxFuture<'_, Result<OffsetDateTime, RuntimeError>> {
    async move {
        let now = Retries::new(Duration::ZERO).run(|_| store.now()).await;
        let now = now.map_err(GivenUp::error("the clock was read"))?;
        when.instant(now.latest)
    }
    .boxed()
}

/// Checks that the context is not too large.
pub(crate) fn check_context_size(limit: usize, context: &Context) -> Result<(), RuntimeError> {
    let bytes = context.bytes();
    if bytes <= limit {
        return Ok(());
    }
    let largest = context.iter().max_by_key(|(_, text)| text.len());
    let largest = largest.map_or_else(String::new, |(key, _)| key.to_owned());
    Err(RuntimeError::from(ErrorKind::ContextTooLarge { bytes, limit, largest }))
}

/// The methods that set the options of a launch, for a builder with a field `options`.
macro_rules! launch_options {
    () => {
        /// Adds an element to the context with which the handlers of the message start. It replaces the element under
        /// the same key, unless the key defines another rule.
        pub fn with<K: ::scoop_core::ContextKey>(mut self, element: K) -> Self {
            self.options.with(element);
            self
        }

        /// Names the caller that `authorize` of commands gets: of this one, and of those that its handlers launch. The
        /// same as [`with`](Self::with) of a [`Caller`](::scoop_core::Caller).
        pub fn caller(self, caller: ::scoop_core::Caller) -> Self {
            self.with(caller)
        }

        /// Sets the priority of the runs of the message among the other runs of their sagas. The messages that they launch
        /// inherit it, also in a rollback; each can set another. By default a message has that of the step that launches
        /// it; one that a client launches is normal. See [`Priority`](::scoop_core::Priority).
        pub fn priority(mut self, priority: ::scoop_core::Priority) -> Self {
            self.options.priority(priority);
            self
        }

        /// Sets the deadline of the forward path. A run that has not finished by then is rolled back, together with
        /// the runs waiting for it. The messages that it launches inherit the deadline; they can tighten it, never
        /// extend it. A deadline in the past is missed at once. Messages launched by compensations belong to the
        /// rollback: only the rollback and total deadlines apply to them.
        pub fn deadline(mut self, when: impl Into<$crate::When>) -> Self {
            self.options.deadline(::scoop_core::DeadlineKind::HappyPath, when.into());
            self
        }

        /// Sets the deadline of a rollback. A rollback that has not finished by then is given up, and the remaining
        /// effects stay.
        pub fn rollback_deadline(mut self, when: impl Into<$crate::When>) -> Self {
            self.options.deadline(::scoop_core::DeadlineKind::Rollback, when.into());
            self
        }

        /// Sets a deadline for forward path and rollback. If it passes on the forward path, the run is rolled back;
        /// if it passes during a rollback, the rollback is given up.
        pub fn total_deadline(mut self, when: impl Into<$crate::When>) -> Self {
            self.options.deadline(::scoop_core::DeadlineKind::Absolute, when.into());
            self
        }

        /// Names the source of this launch's deadlines, which appears in the failures of runs that miss them.
        pub fn source(mut self, source: impl Into<String>) -> Self {
            self.options.source(source.into());
            self
        }

        /// Continues the trace of a caller, which its headers `traceparent` and `tracestate` of [W3C Trace
        /// Context](https://www.w3.org/TR/trace-context/) name, such as those of an HTTP request. Without this, and with the
        /// feature `opentelemetry`, the message continues the trace of the current span. Malformed headers are left out,
        /// with a log line at level DEBUG; they never fail the launch.
        pub fn trace_headers(mut self, traceparent: Option<&str>, tracestate: Option<&str>) -> Self {
            self.options.trace_headers(traceparent, tracestate);
            self
        }

        /// Makes the launch fail if no handler is subscribed to the topic at that moment. `#[message(handlers =
        /// "required")]` does so for all messages of a type. A client gets
        /// [`RuntimeError::is_no_handler`]($crate::RuntimeError::is_no_handler), and nothing is stored. A step fails with
        /// that error when it ends, and nothing of it is committed.
        pub fn required(mut self) -> Self {
            self.options.required = true;
            self
        }

        /// Delays the handlers of the message: they begin no sooner than this. Meanwhile the message holds no task
        /// and no connection.
        pub fn delay(mut self, when: impl Into<$crate::When>) -> Self {
            self.options.not_before(when.into());
            self
        }
    };
}

/// The method that lets a launch wait for room in a queue, for a builder with a field `capacity_within`.
macro_rules! capacity_option {
    () => {
        /// If the queue of a saga with `#[saga(queue = ..)]` is full, waits for room: until the launch is admitted, and for at
        /// most this time. Without this, the launch is refused at once. While it waits, nothing is stored; it looks again after
        /// delays that grow to half a second, and holds no connection. The
        /// [guide](https://docs.rs/crate/scoop-saga/latest/source/docs/limits.md) describes such limits.
        ///
        /// A launch in a transaction of the caller does not wait, since that would keep the transaction open.
        ///
        /// # Errors
        ///
        /// The launch fails with [`RuntimeError::is_queue_full`]($crate::RuntimeError::is_queue_full) if there is no room by then.
        ///
        /// # Cancel safety
        ///
        /// If the launch is dropped while it waits, nothing is launched.
        ///
        /// ```no_run
        /// # use std::time::Duration;
        /// # use serde::{Deserialize, Serialize};
        /// # #[derive(Serialize, Deserialize)]
        /// # struct OrderPlaced { order: u32 }
        /// # impl scoop_core::Message for OrderPlaced { const TOPIC: &'static str = "orders.placed"; type Reply = (); }
        /// # async fn example(scoop: scoop_runtime::Scoop) -> Result<(), scoop_runtime::RuntimeError> {
        /// let retry_for = Duration::from_secs(5);
        /// scoop.launch(OrderPlaced { order: 7 }).wait_for_capacity(retry_for).await?;
        /// scoop.launch_all((0..100).map(|order| OrderPlaced { order })).wait_for_capacity(retry_for).await?;
        /// # Ok(())
        /// # }
        /// ```
        pub fn wait_for_capacity(mut self, within: ::std::time::Duration) -> Self {
            self.capacity_within = Some(within);
            self
        }
    };
}

pub(crate) use {capacity_option, launch_options};
