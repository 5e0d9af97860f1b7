//! `#[message(wait = AtLeast(2).within("10s"))]` and `#[saga(wait = ..)]`: the strategy of launches.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Expr, ExprLit, Lit, LitStr, parse_quote};

use crate::duration;
use crate::errors::Errors;
use crate::settings::Settings;

/// The function that returns the strategy, if there is one.
pub(crate) fn function(settings: &Settings, errors: &mut Errors) -> Option<TokenStream> {
    let takes = "a strategy: `wait = AtLeast(2).within(\"10s\")`";
    let mut strategy = settings
        .expression("wait", takes, errors, |value| (!matches!(value, Expr::Lit(_))).then(|| value.clone()))?;
    check(&mut strategy, errors)?;
    Some(quote! {
        fn wait() -> ::core::option::Option<::scoop::wait::WaitPlan> {
            #[allow(unused_imports)]
            use ::scoop::wait::WaitStrategy as _;
            ::core::option::Option::Some(::core::convert::Into::into(#strategy))
        }
    })
}

/// Finds the mistakes that can be seen, and writes durations as code. `None` if there are any.
fn check(value: &mut Expr, errors: &mut Errors) -> Option<()> {
    match value {
        Expr::MethodCall(call) => {
            check(&mut call.receiver, errors)?;
            match call.args.first_mut().filter(|_| call.method == "within") {
                Some(argument) => write_duration(argument, errors),
                None => Some(()),
            }
        }
        Expr::Call(call) => {
            let Expr::Path(function) = &*call.func else { return Some(()) };
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
                    None
                }
                ([.., "Only" | "Without", "these"], Some(Expr::Array(names))) if names.elems.is_empty() => {
                    errors.at(names, "name a handler: `[\"the-name-of-its-saga\"]`");
                    None
                }
                ([.., "Window", "of"], Some(argument)) => write_duration(argument, errors),
                _ => Some(()),
            }
        }
        _ => Some(()),
    }
}

fn is_zero(count: &syn::LitInt) -> bool {
    count.base10_parse::<u64>().is_ok_and(|count| count == 0)
}

fn write_duration(argument: &mut Expr, errors: &mut Errors) -> Option<()> {
    if let Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) = argument {
        *argument = errors.record(millis(text))?;
    }
    Some(())
}

fn millis(text: &LitStr) -> syn::Result<Expr> {
    let millis = u64::try_from(duration::parse(text)?.as_millis()).unwrap_or(u64::MAX);
    Ok(parse_quote!(::core::time::Duration::from_millis(#millis)))
}
