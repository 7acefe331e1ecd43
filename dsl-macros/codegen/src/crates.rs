//! Device crates: crates whose source is compiled for the device too, so that kernels can use what is in them.
//!
//! A macro cannot read another crate. So [`declare`] (`device_crate!`) leaves a `macro_rules!` in such a crate that tells where its source
//! is. [`Asked::next`] calls it for each crate that an attribute names, and what the crate declares comes back with the item.

use crate::host;
use proc_macro2::{Ident, TokenStream, TokenTree};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use std::path::PathBuf;
use syn::parse::{Parse, ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::{LitStr, Path, Token};

/// A device crate, as it declares itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceCrate {
    /// What the kernel's crate calls it.
    pub name: String,
    /// Its root file.
    pub root: PathBuf,
    /// What it is compiled with on the host: its features.
    pub cfgs: Vec<String>,
    /// The device crates that it uses.
    pub uses: Vec<String>,
    /// Its transports.
    pub transports: Vec<Declared>,
}

/// A transport of a device crate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    /// Path of the host type within the crate.
    pub path: String,
    /// Path of the device half within the crate, as it is compiled for the device.
    pub ops: String,
    /// Whether its kernels run on CPU threads.
    pub threads: bool,
    /// Whether its kernels run on GPUs.
    pub cuda: bool,
    /// Whether kernels may store into peers' memory.
    pub stores: bool,
}

/// The crates that the attribute names and that have not been asked, each with its path.
type Pending = Vec<(Ident, TokenStream)>;

/// `#[comm_kernel]` on its way: what was found, what is still to be asked, the attribute and the item.
pub struct Asked {
    /// The crates that have answered.
    pub crates: Vec<DeviceCrate>,
    found: TokenStream,
    pending: Pending,
    /// The attribute.
    pub attribute: TokenStream,
    /// The item.
    pub item: TokenStream,
}

impl Asked {
    /// As the user wrote it, nobody asked yet.
    pub fn nobody(attribute: TokenStream, item: TokenStream) -> Self {
        let pending = named_in(&attribute).into_iter().map(|name| (name.clone(), quote!(::#name))).collect();
        Asked { crates: Vec::new(), found: TokenStream::new(), pending, attribute, item }
    }

    /// What a crate's macro passed on.
    ///
    /// # Errors
    /// If it is not of that form: the crate was built with another version.
    pub fn from_answer(tokens: TokenStream) -> syn::Result<Self> {
        let parse = |input: ParseStream<'_>| {
            let (found, pending, attribute);
            syn::bracketed!(found in input);
            let found: TokenStream = found.parse()?;
            syn::bracketed!(pending in input);
            let pending = pending.call(pending_list)?;
            syn::bracketed!(attribute in input);
            Ok((found, pending, attribute.parse()?, input.parse()?))
        };
        let (found, mut pending, attribute, item): (TokenStream, Pending, _, _) = parse.parse2(tokens)?;
        let mut crates = Vec::new();
        let answers = |input: ParseStream<'_>| {
            while !input.is_empty() {
                let (krate, uses) = answer(input)?;
                crates.push(krate);
                pending.extend(uses);
            }
            Ok(())
        };
        answers.parse2(found.clone())?;
        pending.retain(|(name, _)| !crates.iter().any(|c: &DeviceCrate| name == &c.name));
        Ok(Asked { crates, found, pending, attribute, item })
    }

    /// What [`Asked::from_answer`] takes when all have answered.
    pub fn answered(&self) -> TokenStream {
        let (found, attribute, item) = (&self.found, &self.attribute, &self.item);
        quote!([#found] [] [#attribute] #item)
    }

    /// The call of the next crate's macro, or `None` when all have answered.
    pub fn next(&self) -> Option<TokenStream> {
        let ((name, path), rest) = self.pending.split_first()?;
        let rest = rest.iter().map(|(name, path)| quote!(#name [#path]));
        let (krate, found, attribute, item) =
            (fusewire(&self.attribute), &self.found, &self.attribute, &self.item);
        // What is said of a crate that is none stands at its name.
        Some(quote_spanned! { name.span()=>
            #path::fusewire_device_crate! { [#krate::__comm_kernel] #name [#found] [#(#rest)*] [#attribute] #item }
        })
    }
}

fn pending_list(input: ParseStream<'_>) -> syn::Result<Pending> {
    let mut all = Vec::new();
    while !input.is_empty() {
        let name = input.parse()?;
        let path;
        syn::bracketed!(path in input);
        all.push((name, path.parse()?));
    }
    Ok(all)
}

/// `{ name root ".." cfgs [..] uses [..] transports [..] }`, as [`declare`] writes it.
fn answer(input: ParseStream<'_>) -> syn::Result<(DeviceCrate, Pending)> {
    let (content, cfgs, uses, transports);
    syn::braced!(content in input);
    let name: Ident = content.parse()?;
    let root: LitStr = content.parse()?;
    syn::bracketed!(cfgs in content);
    let mut given = Vec::new();
    while !cfgs.is_empty() {
        given.push(cfgs.parse::<LitStr>()?.value());
    }
    syn::bracketed!(uses in content);
    let uses = uses.call(pending_list)?;
    syn::bracketed!(transports in content);
    let transports = Punctuated::<Transport, Token![;]>::parse_terminated(&transports)?;
    let krate = DeviceCrate {
        name: name.to_string(),
        root: PathBuf::from(root.value()),
        cfgs: given,
        uses: uses.iter().map(|(name, _)| name.to_string()).collect(),
        transports: transports.iter().map(Transport::declared).collect(),
    };
    Ok((krate, uses))
}

/// `Tube = TubeOps: threads, gpus, stores`.
struct Transport {
    path: Path,
    ops: Path,
    words: Punctuated<Ident, Token![,]>,
}

const WORDS: [&str; 3] = ["threads", "gpus", "stores"];

impl Parse for Transport {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let path = input.call(Path::parse_mod_style)?;
        input.parse::<Token![=]>()?;
        let ops = input.call(Path::parse_mod_style)?;
        input.parse::<Token![:]>()?;
        let words = Punctuated::<Ident, Token![,]>::parse_separated_nonempty(input)?;
        if let Some(other) = words.iter().find(|w| !WORDS.iter().any(|known| w == known)) {
            let why = "what is said of a transport is `threads` (kernels run on CPU threads), `gpus` (kernels run on GPUs) and `stores` \
                       (kernels may store into peers' memory)";
            return Err(syn::Error::new(other.span(), why));
        }
        if !words.iter().any(|w| w == "threads" || w == "gpus") {
            return Err(syn::Error::new_spanned(
                &path,
                "say where its kernels run: `threads`, `gpus` or both",
            ));
        }
        Ok(Transport { path, ops, words })
    }
}

impl Transport {
    fn declared(&self) -> Declared {
        let text =
            |path: &Path| path.segments.iter().map(|s| s.ident.to_string()).collect::<Vec<_>>().join("::");
        let says = |word: &str| self.words.iter().any(|w| w == word);
        Declared {
            path: text(&self.path),
            ops: text(&self.ops),
            threads: says("threads"),
            cuda: says("gpus"),
            stores: says("stores"),
        }
    }
}

impl ToTokens for Transport {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        let (path, ops, words) = (&self.path, &self.ops, &self.words);
        tokens.extend(quote!(#path = #ops: #words));
    }
}

/// `device_crate! { uses base; transport Tube = TubeOps: threads; }`, in the crate's root.
pub fn declare(tokens: TokenStream) -> TokenStream {
    let parse = |input: ParseStream<'_>| {
        let (mut uses, mut transports) = (Vec::<Ident>::new(), Vec::<Transport>::new());
        while !input.is_empty() {
            let word: Ident = input.parse()?;
            match word.to_string().as_str() {
                "uses" => uses.extend(Punctuated::<Ident, Token![,]>::parse_separated_nonempty(input)?),
                "transport" => transports.push(input.parse()?),
                _ => {
                    let why = "a device crate says `uses some_crate;` and `transport Name = NameOps: threads, gpus, stores;`";
                    return Err(syn::Error::new(word.span(), why));
                }
            }
            input.parse::<Token![;]>()?;
        }
        Ok((uses, transports))
    };
    let (uses, transports) = match parse.parse2(tokens) {
        Ok(parsed) => parsed,
        Err(error) => return error.to_compile_error(),
    };
    let told = host::told();
    let Some(root) = &told.root else {
        return quote!(
            ::core::compile_error! { "`device_crate!` finds no root file on the compiler's command line" }
        );
    };
    let root = root.display().to_string();
    let cfgs = told.cfgs.iter().map(String::as_str);
    let aliases: Vec<_> = uses.iter().map(|name| format_ident!("__fusewire_uses_{name}")).collect();
    quote! {
        #(#[doc(hidden)] pub use ::#uses as #aliases;)*
        #[doc(hidden)]
        #[macro_export]
        macro_rules! fusewire_device_crate {
            ([$($callback:tt)*] $name:ident [$($found:tt)*] $($rest:tt)*) => {
                $($callback)*! {
                    [$($found)* { $name #root [#(#cfgs)*] [#(#uses [$crate::#aliases])*] [#(#transports);*] }] $($rest)*
                }
            };
        }
    }
}

/// The crates that paths of the attribute begin with, each once. Whatever is wrong with the attribute is said when it is parsed.
pub fn named_in(attribute: &TokenStream) -> Vec<Ident> {
    let mut names: Vec<Ident> = Vec::new();
    let mut trees = attribute.clone().into_iter().peekable();
    while let Some(tree) = trees.next() {
        let (TokenTree::Ident(key), Some(TokenTree::Group(list))) = (tree, trees.peek()) else { continue };
        let list = list.stream();
        let found: Vec<Ident> = match key.to_string().as_str() {
            "transports" | "schedules" => {
                let paths = Punctuated::<Path, Token![,]>::parse_terminated.parse2(list);
                let paths = paths.into_iter().flatten().filter(|path| path.segments.len() > 1);
                paths.filter_map(|path| Some(path.segments.first()?.ident.clone())).collect()
            }
            "uses" => {
                Punctuated::<Ident, Token![,]>::parse_terminated.parse2(list).into_iter().flatten().collect()
            }
            _ => continue,
        };
        for name in found {
            let own = ["crate", "self", "super"].iter().any(|word| name == word);
            if !own && !names.contains(&name) {
                names.push(name);
            }
        }
    }
    names
}

/// Where the attribute says that fusewire is.
fn fusewire(attribute: &TokenStream) -> TokenStream {
    let trees: Vec<TokenTree> = attribute.clone().into_iter().collect();
    let is = |tree: &TokenTree, text: &str| tree.to_string() == text;
    let at = trees.windows(2).position(|pair| is(&pair[0], "crate") && is(&pair[1], "="));
    match at {
        Some(at) => trees[at + 2..].iter().take_while(|tree| !is(tree, ",")).cloned().collect(),
        None => quote!(::fusewire),
    }
}

/// Text that lasts as long as the compiler, so that what is named elsewhere is described as what the tables hold.
pub fn interned(text: &str) -> &'static str {
    text.to_owned().leak()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_are_named_by_paths_and_by_uses() {
        let attribute = quote!(
            transports(Shm, tube::Tube, ::tube::Other, crate::Own),
            schedules(all_to_all, ring::Shift),
            uses(math),
            archs(sm_90)
        );
        let names: Vec<String> = named_in(&attribute).iter().map(Ident::to_string).collect();
        assert_eq!(names, ["tube", "ring", "math"]);
        assert!(named_in(&quote!(transports(Shm), schedules(sendrecv))).is_empty());
        assert!(named_in(&quote!(transports = 3, uses)).is_empty());
    }

    #[test]
    fn answers_come_back_with_attribute_and_item() {
        let asked = Asked::from_answer(quote! {
            [{ tube "/src/lib.rs" ["fast"] [base [$crate::__fusewire_uses_base]] [Tube = ops::TubeOps: threads, stores] }]
            [ring [::ring]] [transports(tube::Tube)] mod hooks {}
        })
        .unwrap();
        let [tube] = asked.crates.as_slice() else { panic!("one crate") };
        assert_eq!(
            (tube.name.as_str(), &tube.cfgs, &tube.uses),
            ("tube", &vec!["fast".into()], &vec!["base".into()])
        );
        let ops = Declared {
            path: "Tube".into(),
            ops: "ops::TubeOps".into(),
            threads: true,
            cuda: false,
            stores: true,
        };
        assert_eq!(tube.transports, [ops]);
        let next = asked.next().unwrap().to_string();
        assert!(next.starts_with(":: ring :: fusewire_device_crate !"), "{next}");
        assert!(next.contains("[base [$ crate :: __fusewire_uses_base]]"), "{next}");
    }

    #[test]
    fn a_declaration_says_what_it_wants() {
        for (text, says) in [
            (quote!(transport Tube = TubeOps: lasers;), "`threads`"),
            (quote!(transport Tube = TubeOps: stores;), "say where its kernels run"),
            (quote!(schedule Shift;), "uses some_crate"),
        ] {
            assert!(declare(text).to_string().contains(says), "{says}");
        }
    }
}
