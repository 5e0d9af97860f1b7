//! Methods that look like steps and are never called: a `#[step]` or a setting was forgotten.

use std::collections::BTreeSet;

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::{FnArg, Ident};

use super::parse::{Block, Function, Item};
use super::types::{is_named, mutably_referenced};
use crate::errors::Errors;

/// Reports each function with a scope that nothing in the block names. A helper is named by the function that
/// calls it.
pub(super) fn report(block: &Block, errors: &mut Errors) {
    for function in block.functions().filter(|it| it.steps.is_empty() && takes_scope(it)) {
        let name = &function.sig.ident;
        if !is_named_by_others(name, block) {
            let hint = "add `#[step]`, name it in `rollback = ..` or another setting of a step, or move it \
                          to an `impl` block without `#[saga]`";
            errors.at(name, format!("`{name}` takes a scope, but no step names it; {hint}"));
        }
    }
}

fn takes_scope(function: &Function) -> bool {
    function.sig.inputs.iter().any(|input| match input {
        FnArg::Typed(parameter) => mutably_referenced(&parameter.ty).is_some_and(|ty| is_named(ty, "Scope")),
        FnArg::Receiver(_) => false,
    })
}

/// Whether the name occurs in a setting of a step, or in the body of another item.
fn is_named_by_others(name: &Ident, block: &Block) -> bool {
    let mut names = BTreeSet::new();
    for item in &block.items {
        match item {
            Item::Function(function) if function.sig.ident == *name => {}
            Item::Function(function) => {
                function.steps.iter().for_each(|step| collect(step.to_token_stream(), &mut names));
                collect(function.body.to_token_stream(), &mut names);
            }
            Item::Other(item) => collect(item.to_token_stream(), &mut names),
        }
    }
    names.contains(&name.to_string())
}

fn collect(tokens: TokenStream, names: &mut BTreeSet<String>) {
    for token in tokens {
        match token {
            TokenTree::Ident(ident) => {
                names.insert(ident.to_string());
            }
            TokenTree::Group(group) => collect(group.stream(), names),
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}
