//! `#[message(wait = AtLeast(2).within("10s"))]` and `#[saga(wait = ..)]`: the strategy of launches.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Expr, ExprLit, Lit, LitStr, parse_quote};

use crate::duration;
use crate::errors::Errors;
use crate::settings::Settings;

/// The functions whose only argument is a duration, which may be written as a string.
const TAKE_DURATIONS: [&str; 2] = ["within", "of"];

/// The function that returns the strategy, if there is one.
pub(crate) fn function(settings: &Settings, errors: &mut Errors) -> Option<TokenStream> {
    let takes = "a strategy: `wait = AtLeast(2).within(\"10s\")`";
    let mut strategy = settings.expression("wait", takes, errors, |value| Some(value.clone()))?;
    check(&mut strategy, errors);
    Some(quote! {
        fn wait() -> ::core::option::Option<::scoop::wait::WaitPlan> {
            #[allow(unused_imports)]
            use ::scoop::wait::WaitStrategy as _;
            ::core::option::Option::Some(::core::convert::Into::into(#strategy))
        }
    })
}

/// Finds the mistakes that can be seen, and writes durations as code.
fn check(value: &mut Expr, errors: &mut Errors) {
    match value {
        Expr::MethodCall(call) => {
            check(&mut call.receiver, errors);
            let takes_duration = TAKE_DURATIONS.iter().any(|name| call.method == name);
            call.args
                .iter_mut()
                .filter(|_| takes_duration)
                .for_each(|argument| write_duration(argument, errors));
        }
        Expr::Call(call) => {
            let Expr::Path(function) = &*call.func else { return };
            let names: Vec<_> =
                function.path.segments.iter().map(|segment| segment.ident.to_string()).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            match (&names[..], call.args.first_mut()) {
                ([.., "AtLeast"], Some(Expr::Lit(ExprLit { lit: Lit::Int(count), .. })))
                    if is_zero(count) =>
                {
                    errors.at(
                        count,
                        "at least 0 handlers are no condition; write 1 or more, or leave `wait` out",
                    );
                }
                ([.., "Only" | "Without", "these"], Some(Expr::Array(names))) if names.elems.is_empty() => {
                    errors.at(names, "name a handler: `[\"the-name-of-its-saga\"]`");
                }
                ([.., "Window", "of"], Some(argument)) => write_duration(argument, errors),
                _ => {}
            }
        }
        _ => {}
    }
}

fn is_zero(count: &syn::LitInt) -> bool {
    count.base10_parse::<u64>().is_ok_and(|count| count == 0)
}

/// Writes a duration that is given as a string as code.
fn write_duration(argument: &mut Expr, errors: &mut Errors) {
    if let Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) = argument
        && let Some(duration) = errors.keep(millis(text))
    {
        *argument = duration;
    }
}

fn millis(text: &LitStr) -> syn::Result<Expr> {
    let millis = u64::try_from(duration::parse(text)?.as_millis()).unwrap_or(u64::MAX);
    Ok(parse_quote!(::core::time::Duration::from_millis(#millis)))
}
