//! Scripted handlers: sagas whose steps report their calls, and then do what a line of the test says.

use std::time::Duration;

use futures_util::future::BoxFuture;
use scoop::{ContextKey, Error, Failure, Message, Result, Scope};

use crate::{Gate, handled};

/// Declares a saga by what its functions do, most of them in a line.
///
/// ```text
/// handler! {
///     RootHandler: "root-handler" on Root;
///     step "0" zero [rollback = undo, on_child_failure = handle] => launches(Child);
///     step "1" one => fails(SIMULATED);
///     rollback undo => done();
///     on_child_failure handle => passes_on();
/// }
/// ```
///
/// It is written as an `impl` block with `#[saga]`: `step "0" zero [settings]` is the function `zero` with
/// `#[step(name = "0", settings)]`, and `rollback` and `on_child_failure` are functions that settings name. They report
/// their calls, see [`calls_of`](crate::calls_of), and play an [`Act`]; `.silently()` omits the report. Functions that do
/// something else are written out among them.
///
/// `RootHandler(gate)` has a field `gate`, for [`at_gate`]; `RootHandler { notes: Notes }` has these fields.
#[macro_export]
macro_rules! handler {
    ($(#[$meta:meta])* $visibility:vis $type:ident: $name:tt on $message:ident; $($functions:tt)*) => {
        $(#[$meta])*
        #[derive(Default)]
        $visibility struct $type;

        impl $crate::Gated for $type {}

        $crate::handler! { @saga $type $name $message [] $($functions)* }
    };
    ($(#[$meta:meta])* $visibility:vis $type:ident(gate): $name:tt on $message:ident; $($functions:tt)*) => {
        $(#[$meta])*
        $visibility struct $type {
            $visibility gate: $crate::Gate,
        }

        impl $crate::Gated for $type {
            fn gate(&self) -> Option<&$crate::Gate> {
                Some(&self.gate)
            }
        }

        $crate::handler! { @saga $type $name $message [] $($functions)* }
    };
    (
        $(#[$meta:meta])* $visibility:vis $type:ident { $($field:ident: $field_type:ty),+ $(,)? }:
        $name:tt on $message:ident; $($functions:tt)*
    ) => {
        $(#[$meta])*
        $visibility struct $type {
            $($visibility $field: $field_type),+
        }

        impl $crate::Gated for $type {}

        $crate::handler! { @saga $type $name $message [] $($functions)* }
    };
    (@saga $type:ident $name:tt $message:ident [$($written:tt)*]) => {
        #[::scoop::saga(name = $name)]
        #[subscribes($message)]
        impl $type {
            $($written)*
        }
    };
    (@saga $type:ident $name:tt $message:ident [$($written:tt)*]
        step $step_name:tt $step:ident $([$($settings:tt)*])? => $act:expr; $($rest:tt)*
    ) => {
        $crate::handler! { @saga $type $name $message [$($written)*
            #[step(name = $step_name $(, $($settings)*)?)]
            async fn $step(&self, scope: &mut ::scoop::Scope<'_>, _: &$message) -> ::scoop::Result<()> {
                $crate::play($act, $crate::invoked, scope, $crate::Gated::gate(self)).await
            }
        ] $($rest)* }
    };
    (@saga $type:ident $name:tt $message:ident [$($written:tt)*]
        rollback $undo:ident => $act:expr; $($rest:tt)*
    ) => {
        $crate::handler! { @saga $type $name $message [$($written)*
            async fn $undo(
                &self,
                scope: &mut ::scoop::Scope<'_>,
                _: &$message,
                _: &::scoop::Failure,
            ) -> ::scoop::Result<()> {
                $crate::play($act, $crate::compensated, scope, $crate::Gated::gate(self)).await
            }
        ] $($rest)* }
    };
    (@saga $type:ident $name:tt $message:ident [$($written:tt)*]
        on_child_failure $handle:ident => $handling:expr; $($rest:tt)*
    ) => {
        $crate::handler! { @saga $type $name $message [$($written)*
            async fn $handle(
                &self,
                scope: &mut ::scoop::Scope<'_>,
                _: &$message,
                failure: &::scoop::Failure,
            ) -> ::scoop::Result<()> {
                $crate::react($handling, scope, failure).await
            }
        ] $($rest)* }
    };
    (@saga $type:ident $name:tt $message:ident [$($written:tt)*]
        $(#[$($attribute:tt)*])* async fn $function:ident $parameters:tt -> $returns:ty { $($code:tt)* } $($rest:tt)*
    ) => {
        $crate::handler! { @saga $type $name $message [$($written)*
            $(#[$($attribute)*])*
            async fn $function $parameters -> $returns { $($code)* }
        ] $($rest)* }
    };
}

/// What a function of a handler does, move by move.
pub struct Act {
    moves: Vec<Move>,
    is_silent: bool,
}

enum Move {
    Call(Box<Call>),
    Gate,
}

type Call = dyn for<'a> FnOnce(&'a mut Scope<'_>) -> BoxFuture<'a, Result<()>> + Send;

/// A handler that may have a gate.
pub trait Gated {
    /// The gate at which [`at_gate`] stops.
    fn gate(&self) -> Option<&Gate> {
        None
    }
}

impl Act {
    fn new(one: Move) -> Self {
        Self { moves: vec![one], is_silent: false }
    }

    fn calling(
        call: impl for<'a> FnOnce(&'a mut Scope<'_>) -> BoxFuture<'a, Result<()>> + Send + 'static,
    ) -> Self {
        Self::new(Move::Call(Box::new(call)))
    }

    /// Adds what comes next.
    #[must_use]
    pub fn then(mut self, next: Self) -> Self {
        self.moves.extend(next.moves);
        self
    }

    /// Leaves the call unreported.
    #[must_use]
    pub fn silently(mut self) -> Self {
        self.is_silent = true;
        self
    }
}

/// Nothing: the function succeeds.
pub fn done() -> Act {
    Act { moves: vec![], is_silent: false }
}

/// Launches a message.
pub fn launches<M: Message>(message: M) -> Act {
    Act::calling(move |scope| {
        Box::pin(async move {
            scope.launch(message).await?;
            Ok(())
        })
    })
}

/// Executes a statement in the transaction of the step.
pub fn executes(sql: &'static str) -> Act {
    Act::calling(move |scope| {
        Box::pin(async move {
            sqlx::query(sql).execute(scope.tx().await?).await?;
            Ok(())
        })
    })
}

/// Sets a value in the context.
pub fn sets(value: impl ContextKey) -> Act {
    Act::calling(move |scope| Box::pin(async move { scope.set(value) }))
}

/// Fails if the run has to give up.
pub fn checks() -> Act {
    Act::calling(|scope| Box::pin(scope.check()))
}

/// Waits until the run has to give up.
pub fn until_stopped() -> Act {
    Act::calling(|scope| {
        Box::pin(async move {
            scope.stop_signal().raised().await;
            Ok(())
        })
    })
}

/// Never returns.
pub fn never_ends() -> Act {
    Act::calling(|_| Box::pin(std::future::pending()))
}

/// Fails with that error.
pub fn fails<E>(error: E) -> Act
where
    Error: From<E>,
    E: Send + 'static,
{
    Act::calling(move |_| Box::pin(async move { Err(error.into()) }))
}

/// Takes a while, where a scenario says so. Nothing may depend on how long.
pub fn takes_ms(millis: u64) -> Act {
    Act::calling(move |_| {
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(millis)).await;
            Ok(())
        })
    })
}

/// Waits until the test opens the gate of the handler.
pub fn at_gate() -> Act {
    Act::new(Move::Gate)
}

/// The reaction of a handler to the failure of a child.
pub enum Handling {
    /// The act in place of the failure.
    Acts(Act),
    /// The failure becomes that of the step.
    PassesOn,
}

/// The failure is over.
pub fn accepts() -> Handling {
    Handling::Acts(done())
}

/// The failure is over, after this.
pub fn acts(act: Act) -> Handling {
    Handling::Acts(act)
}

/// The failure becomes that of the step.
pub fn passes_on() -> Handling {
    Handling::PassesOn
}

/// Reports the call and plays the act.
///
/// # Errors
///
/// Those of its moves.
pub async fn play(
    act: Act,
    report: impl Fn(&Scope<'_>) -> usize,
    scope: &mut Scope<'_>,
    gate: Option<&Gate>,
) -> Result<()> {
    if !act.is_silent {
        report(scope);
    }
    for one in act.moves {
        match one {
            Move::Call(call) => call(scope).await?,
            Move::Gate => gate.expect("the handler has a gate").pass().await,
        }
    }
    Ok(())
}

/// Reports the call of a child failure handler and reacts.
///
/// # Errors
///
/// The failure, if it is passed on; that of the act otherwise.
pub async fn react(handling: Handling, scope: &mut Scope<'_>, failure: &Failure) -> Result<()> {
    match handling {
        Handling::Acts(act) => play(act, handled, scope, None).await,
        Handling::PassesOn => {
            handled(scope);
            Err(Error::failure(failure.clone()))
        }
    }
}
