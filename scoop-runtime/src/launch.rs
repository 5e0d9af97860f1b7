//! What can be said about a message when it is launched: what travels with it, until when it has to
//! be done, and from when on.

use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use scoop_core::{Context, ContextError, ContextKey, Deadline, DeadlineKind, SleepUntil};

use crate::patience::{Trial, Vain};
use crate::store::Store;
use crate::{RuntimeError, When};

/// All that was said about one launch.
#[derive(Default)]
pub(crate) struct Options {
    elements: Vec<Element>,
    deadlines: Vec<(DeadlineKind, When)>,
    /// Who sets the deadlines.
    source: Option<String>,
    not_before: Option<When>,
    /// Whether the launch fails without a handler.
    pub(crate) required: bool,
}

type Element = Box<dyn FnOnce(&mut Context) -> Result<(), ContextError> + Send>;

impl Options {
    pub(crate) fn with<K: ContextKey>(&mut self, element: K) {
        self.elements.push(Box::new(move |context| context.set(element)));
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

    /// What the handlers of the message start with; `base` is what whoever launches it has, and
    /// `launcher` who that is. A deadline needs the clock of the server, which is asked for as long as `patience` lasts.
    pub(crate) fn context<'a>(
        self,
        base: Context,
        launcher: &'a str,
        store: &'a Store,
        patience: Duration,
        limit: usize,
    ) -> BoxFuture<'a, Result<Context, RuntimeError>> {
        async move {
            let mut context = base;
            for element in self.elements {
                element(&mut context)?;
            }
            if !self.deadlines.is_empty() || self.not_before.is_some() {
                let now = Trial::new(patience).endure(|_| store.now()).await;
                let now = now.map_err(Vain::error("the clock was read"))?;
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
            within(limit, &context)?;
            Ok(context)
        }
        .boxed()
    }
}

/// A context that is not too large.
pub(crate) fn within(limit: usize, context: &Context) -> Result<(), RuntimeError> {
    let bytes = context.bytes();
    if bytes <= limit {
        return Ok(());
    }
    let largest = context.iter().max_by_key(|(_, text)| text.len());
    let largest = largest.map_or_else(String::new, |(key, _)| key.to_owned());
    Err(RuntimeError::ContextTooLarge { bytes, limit, largest })
}

/// The methods by which one says all that, for a builder with a field `options`.
macro_rules! launch_options {
    () => {
        /// Adds an element to the context with which the handlers of the message start. What is
        /// there under its key already is replaced, unless the key says otherwise.
        pub fn with<K: ::scoop_core::ContextKey>(mut self, element: K) -> Self {
            self.options.with(element);
            self
        }

        /// By when the way forward has to be done. Whoever has not come to its end by then gives up
        /// and is undone; so is whoever waits for it. What the message's handlers launch inherits
        /// the deadline. It can be tightened below, never loosened: of two the earlier one counts. A
        /// deadline that has passed already is missed at once. What a compensation launches belongs to
        /// the rollback: there only the other two count.
        pub fn deadline(mut self, when: impl Into<$crate::When>) -> Self {
            self.options.deadline(::scoop_core::DeadlineKind::HappyPath, when.into());
            self
        }

        /// By when a rollback has to be done. One that is not by then is given up, and what it has
        /// not undone stays as it is.
        pub fn rollback_deadline(mut self, when: impl Into<$crate::When>) -> Self {
            self.options.deadline(::scoop_core::DeadlineKind::Rollback, when.into());
            self
        }

        /// A deadline for either way. If it passes on the way forward, the rollback runs; if it
        /// passes during a rollback, that is given up.
        pub fn total_deadline(mut self, when: impl Into<$crate::When>) -> Self {
            self.options.deadline(::scoop_core::DeadlineKind::Absolute, when.into());
            self
        }

        /// Who sets the deadlines of this launch, for the failures of those who miss them.
        pub fn source(mut self, source: impl Into<String>) -> Self {
            self.options.source(source.into());
            self
        }

        /// Makes the launch fail if no handler is subscribed to the topic at that moment, as
        /// `#[message(handlers = "required")]` does for all messages of a type. A client gets
        /// [`RuntimeError::NoHandler`]($crate::RuntimeError::NoHandler), and nothing is stored; a step fails with
        /// that when it ends, and nothing of it is committed.
        pub fn required(mut self) -> Self {
            self.options.required = true;
            self
        }

        /// The handlers of the message begin no sooner than this, and nothing is held for it
        /// meanwhile: no task, no connection.
        pub fn delay(mut self, when: impl Into<$crate::When>) -> Self {
            self.options.not_before(when.into());
            self
        }
    };
}

pub(crate) use launch_options;
