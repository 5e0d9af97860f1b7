//! The attributes of Scoop: `#[saga]`, `#[step]`, `#[subscribes]`, `#[trace]`, `#[derive(Message)]` and
//! `#[derive(FailureCode)]`.
//!
//! Use them through the crate `scoop`, which re-exports them beside the traits they implement.
//!
//! Each attribute goes from tokens to syntax, from syntax to a checked model, and from that to
//! tokens. All mistakes are reported at once, at the user's own tokens, and the user's code is
//! passed on in any case. What types can tell is left to the compiler: the expansion only sees
//! to it that the compiler's errors land on the user's types.

mod duration;
mod errors;
mod failure_code;
mod message;
mod misplaced;
mod names;
mod saga;
mod settings;
#[cfg(test)]
mod snapshot;
mod trace;

use proc_macro::TokenStream;

/// Makes a struct or an enum a message.
///
/// The topic is the type's name in kebab case, or what `#[message(topic = "..")]` says: 1 to 63
/// bytes. The type needs `Serialize` and `Deserialize` as well, and cannot be generic.
///
/// ```
/// use scoop::prelude::*;
///
/// #[derive(Message, Serialize, Deserialize)]
/// #[message(topic = "orders.placed")]
/// struct OrderPlaced {
///     order: u32,
/// }
///
/// #[derive(Message, Serialize, Deserialize)]
/// struct OrderCancelled;
///
/// assert_eq!(OrderPlaced::TOPIC, "orders.placed");
/// assert_eq!(OrderCancelled::TOPIC, "order-cancelled");
/// ```
#[proc_macro_derive(Message, attributes(message))]
pub fn message(input: TokenStream) -> TokenStream {
    message::derive(input.into()).into()
}

/// Gives a type of errors a code, by which services above find it in a failure, as the type that
/// it is.
///
/// The code is the type's name in kebab case, or what `#[failure(code = "..")]` says: 1 to 180
/// characters. Stored failures rely on it: a type can be renamed as long as it keeps its code. The
/// type needs `Error`, `Serialize` and `Deserialize` as well, and cannot be generic. Two types of
/// one program cannot have the same code; the program does not start then.
///
/// ```
/// use scoop::prelude::*;
///
/// #[derive(Debug, thiserror::Error, Serialize, Deserialize, FailureCode)]
/// #[failure(code = "stock.out")]
/// #[error("{wanted} were wanted, {left} are left")]
/// struct OutOfStock {
///     wanted: u32,
///     left: u32,
/// }
///
/// // What the step of a service returns with `?` is stored, and reaches the services above:
/// let failure = Error::from(OutOfStock { wanted: 7, left: 2 }).into_failure("stock[worker]");
/// assert_eq!(failure.kind, "stock.out");
///
/// // A child failure handler, a compensation, or whoever waits for the outcome:
/// let found = failure.find::<OutOfStock>().unwrap();
/// assert_eq!((found.wanted, found.left), (7, 2));
/// ```
#[proc_macro_derive(FailureCode, attributes(failure))]
pub fn failure_code(input: TokenStream) -> TokenStream {
    failure_code::derive(input.into()).into()
}

/// Has each `?` of a function, or of the functions in a block, note that an error passed it, so
/// that a failure tells the whole way it took. The functions of a [`#[saga]`](macro@saga) do so
/// without it.
///
/// That concerns functions that return `scoop::Result`, and in those not what closures, `async`
/// blocks and macros contain; `.here()?` notes the place there. A `?` that converts another
/// error is noted anywhere.
///
/// What such a function returns is judged by its name. Where a `Result<T>` or an `Error` of your
/// own is named alike, the function does what it did before, but a `?` in it cannot pass an error
/// that borrows; write `crate::Result<T>` then.
///
/// ```
/// use scoop::prelude::*;
///
/// #[scoop::trace]
/// fn price(text: &str) -> Result<u32> {
///     Ok(text.parse::<u32>()?)
/// }
///
/// #[scoop::trace]
/// fn total(prices: &[&str]) -> Result<u32> {
///     let mut total = 0;
///     for text in prices {
///         total += price(text)?;
///     }
///     Ok(total)
/// }
///
/// let failure = total(&["7", "a lot"]).unwrap_err().into_failure("orders[worker]");
/// assert_eq!(failure.stack_trace.len(), 2);
/// assert_eq!(failure.stack_trace[1].function_name.as_deref(), Some("total"));
/// ```
#[proc_macro_attribute]
pub fn trace(arguments: TokenStream, item: TokenStream) -> TokenStream {
    trace::item(arguments.into(), item.into()).into()
}

/// Makes an `impl` block a saga: its methods with [`#[step]`](macro@step) run one after another
/// for every message that the type [`#[subscribes]`](macro@subscribes) to.
///
/// The saga is stored as the type's name in kebab case, or as `#[saga(name = "..")]` says. Stored
/// runs rely on the name: a type can be renamed as long as `name` keeps it.
///
/// Beside the trait `Saga`, this generates the enum of the steps, `CheckoutStep` for `Checkout`,
/// and registers the saga with the program. A saga that is `Default` then needs nothing more; any
/// other must be provided when the program starts. Each `?` in the block notes the place where an
/// error passed it, as with [`#[trace]`](macro@trace).
///
/// Not supported: generic sagas, steps that a `#[cfg]` may remove, and two blocks for one type.
///
/// ```
/// use scoop::prelude::*;
///
/// #[derive(Message, Serialize, Deserialize)]
/// struct OrderPlaced {
///     order: u32,
/// }
///
/// #[derive(Serialize, Deserialize)]
/// struct Payment {
///     id: u32,
/// }
///
/// #[derive(Default)]
/// struct Checkout;
///
/// #[saga]
/// #[subscribes(OrderPlaced)]
/// impl Checkout {
///     #[step(rollback = refund)]
///     async fn charge(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<Payment> {
///         println!("charging {} once: {}", order.order, scope.idempotency_key());
///         Ok(Payment { id: 7 })
///     }
///
///     async fn refund(
///         &self,
///         _: &mut Scope<'_>,
///         _: &OrderPlaced,
///         paid: &Payment,
///         why: &Failure,
///     ) -> Result<()> {
///         println!("giving back payment {}: {why}", paid.id);
///         Ok(())
///     }
///
///     #[step]
///     async fn ship(
///         &self,
///         scope: &mut Scope<'_>,
///         order: &OrderPlaced,
///         paid: &Payment,
///     ) -> Result<Next<CheckoutStep>> {
///         println!("shipping {}, paid with {}", order.order, paid.id);
///         Ok(if scope.iteration() < 3 { Next::Repeat } else { Next::Continue })
///     }
/// }
///
/// assert_eq!(Checkout::DEFINITION.saga, "checkout");
/// assert_eq!(Checkout::DEFINITION.steps[0].name, "charge");
/// assert_ne!(CheckoutStep::Charge, CheckoutStep::Ship);
/// ```
#[proc_macro_attribute]
pub fn saga(arguments: TokenStream, item: TokenStream) -> TokenStream {
    saga::saga(arguments.into(), item.into()).into()
}

/// Makes a method inside a [`#[saga]`](macro@saga) block a step; the steps run in the order they
/// are written in.
///
/// A step is an `async fn` of `&self`, `scope: &mut Scope<'_>` and the message. It returns
///
/// - `Result<()>`, to go on with the next step;
/// - `Result<Next<CheckoutStep>>`, to say which step is next;
/// - `Result<T>` with any other type, to go on and to leave a value. It is stored, so `T` needs
///   `Serialize` and `Deserialize`. A later step takes it as another parameter, `&T`. If two
///   steps return the same type, nobody can ask for it.
///
/// | setting | meaning |
/// | --- | --- |
/// | `rollback = function` | what undoes the step once it is completed |
/// | `on_child_failure = function` | what handles failures of the messages that the step launched |
/// | `name = ".."` | what the step is stored as, if not the function's name |
/// | `timeout = "30s"` | how long it may take: a whole number of `ms`, `s`, `m`, `h` or `d` |
///
/// The two functions stand in the same block, without `#[step]`. They take what a step takes and
/// `&Failure` as the last parameter; their values are those of earlier steps and of the step
/// itself, whose own goes first. They return `Result<()>`; a child failure handler may return
/// `Result<Next<CheckoutStep>>` instead. Several steps can share one.
///
/// See [`#[saga]`](macro@saga) for an example.
#[proc_macro_attribute]
pub fn step(_arguments: TokenStream, item: TokenStream) -> TokenStream {
    misplaced::step(item.into()).into()
}

/// Names the one type of messages that a [`#[saga]`](macro@saga) handles. The two attributes can
/// stand in either order.
///
/// ```
/// # use scoop::prelude::*;
/// # #[derive(Message, Serialize, Deserialize)]
/// # #[message(topic = "orders.placed")]
/// # struct OrderPlaced;
/// # struct Checkout;
/// #[saga]
/// #[subscribes(OrderPlaced)]
/// impl Checkout {
///     // ..
/// #   #[step]
/// #   async fn reserve(&self, _: &mut Scope<'_>, _: &OrderPlaced) -> Result<()> { Ok(()) }
/// }
///
/// assert_eq!(Checkout::DEFINITION.topic, "orders.placed");
/// ```
#[proc_macro_attribute]
pub fn subscribes(arguments: TokenStream, item: TokenStream) -> TokenStream {
    misplaced::subscribes(arguments.into(), item.into()).into()
}
