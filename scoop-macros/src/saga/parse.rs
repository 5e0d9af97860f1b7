//! Turns tokens into syntax: an `impl` block with our attributes separated from the user's code.
//!
//! Bodies of functions are not parsed, except for each `?` in them: see [`crate::trace`]. So half-written code
//! reaches the compiler, and through it the editor, unchanged.

use proc_macro2::{TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::parse::{Parse, ParseStream};
use syn::{Attribute, Generics, ImplItem, Path, Signature, Token, Type, Visibility, braced, token};

use crate::misplaced::is;
use crate::trace;

/// An `impl` block. Its tokens are the user's without our attributes.
pub(crate) struct Block {
    pub(crate) subscribes: Vec<Attribute>,
    /// Further `#[saga]` attributes.
    pub(crate) repeated: Vec<Attribute>,
    pub(crate) generics: Generics,
    pub(crate) of_trait: Option<Type>,
    pub(crate) self_ty: Type,
    pub(crate) items: Vec<Item>,
    attrs: Vec<Attribute>,
    inner_attrs: Vec<Attribute>,
    unsafety: Option<Token![unsafe]>,
    impl_token: Token![impl],
}

pub(crate) enum Item {
    Function(Box<Function>),
    Other(Box<ImplItem>),
}

pub(crate) struct Function {
    pub(crate) steps: Vec<Attribute>,
    pub(crate) attrs: Vec<Attribute>,
    pub(crate) sig: Signature,
    pub(crate) body: TokenTree,
    vis: Visibility,
}

impl Block {
    /// The attributes that the expansion removes, each as it was written first.
    pub(crate) fn stripped(&self) -> impl Iterator<Item = &Path> {
        let subscribes = self.subscribes.first();
        let step = self.functions().find_map(|function| function.steps.first());
        subscribes.into_iter().chain(step).map(Attribute::path)
    }

    pub(crate) fn functions(&self) -> impl Iterator<Item = &Function> {
        self.items.iter().filter_map(|item| match item {
            Item::Function(function) => Some(&**function),
            Item::Other(_) => None,
        })
    }
}

impl Parse for Block {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        Self::parse_below("saga", input)
    }
}

impl Block {
    pub(crate) fn parse_below(attribute: &str, input: ParseStream<'_>) -> syn::Result<Self> {
        let attrs = input.call(Attribute::parse_outer)?;
        let (repeated, attrs) = split(attrs, attribute);
        let (subscribes, attrs) = split(attrs, "subscribes");
        let unsafety = input.parse()?;
        let impl_token = parse_impl(attribute, input)?;
        let mut generics: Generics = input.parse()?;
        let first: Type = input.parse()?;
        let (of_trait, self_ty) = match input.parse::<Option<Token![for]>>()? {
            Some(_) => (Some(first), input.parse()?),
            None => (None, first),
        };
        generics.where_clause = input.parse()?;

        let content;
        braced!(content in input);
        let inner_attrs = content.call(Attribute::parse_inner)?;
        let mut items = Vec::new();
        while !content.is_empty() {
            items.push(content.parse()?);
        }
        Ok(Self {
            subscribes,
            repeated,
            generics,
            of_trait,
            self_ty,
            items,
            attrs,
            inner_attrs,
            unsafety,
            impl_token,
        })
    }
}

fn parse_impl(attribute: &str, input: ParseStream<'_>) -> syn::Result<Token![impl]> {
    input.parse::<Visibility>()?;
    if !input.peek(Token![impl]) {
        let message =
            format!("`#[{attribute}]` belongs on an `impl` block: write it above `impl YourType {{ .. }}`");
        return Err(input.error(message));
    }
    input.parse()
}

impl Parse for Item {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let ahead = input.fork();
        ahead.call(Attribute::parse_outer)?;
        ahead.parse::<Visibility>()?;
        let is_function = ahead.parse::<Signature>().is_ok() && ahead.peek(token::Brace);
        if is_function {
            input.parse().map(|function| Item::Function(Box::new(function)))
        } else {
            input.parse().map(|item| Item::Other(Box::new(item)))
        }
    }
}

impl Parse for Function {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let (steps, attrs) = split(input.call(Attribute::parse_outer)?, "step");
        let (vis, sig, body) = (input.parse()?, input.parse::<Signature>()?, input.parse()?);
        let body = trace::body(&sig, body);
        Ok(Self { steps, attrs, vis, sig, body })
    }
}

fn split(attrs: Vec<Attribute>, name: &str) -> (Vec<Attribute>, Vec<Attribute>) {
    attrs.into_iter().partition(|attribute| is(attribute, name))
}

impl ToTokens for Block {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        let Self { attrs, inner_attrs, unsafety, impl_token, generics, self_ty, items, .. } = self;
        let of_trait = self.of_trait.as_ref().map(|of_trait| quote!(#of_trait for));
        let where_clause = &generics.where_clause;
        tokens.extend(quote! {
            #(#attrs)*
            #unsafety #impl_token #generics #of_trait #self_ty #where_clause {
                #(#inner_attrs)*
                #(#items)*
            }
        });
    }
}

impl ToTokens for Item {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        match self {
            Item::Function(function) => {
                let Function { attrs, vis, sig, body, .. } = &**function;
                tokens.extend(quote!(#(#attrs)* #vis #sig #body));
            }
            Item::Other(item) => item.to_tokens(tokens),
        }
    }
}
