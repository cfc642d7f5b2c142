//! Names of errno values: ENOSPC is more informative to an operator than 28.

const NAMES: &[(i32, &str)] = &[
    (libc::EPERM, "EPERM"),
    (libc::ENOENT, "ENOENT"),
    (libc::EINTR, "EINTR"),
    (libc::EIO, "EIO"),
    (libc::ENXIO, "ENXIO"),
    (libc::E2BIG, "E2BIG"),
    (libc::EBADF, "EBADF"),
    (libc::EAGAIN, "EAGAIN"),
    (libc::ENOMEM, "ENOMEM"),
    (libc::EACCES, "EACCES"),
    (libc::EFAULT, "EFAULT"),
    (libc::EBUSY, "EBUSY"),
    (libc::EEXIST, "EEXIST"),
    (libc::EXDEV, "EXDEV"),
    (libc::ENODEV, "ENODEV"),
    (libc::ENOTDIR, "ENOTDIR"),
    (libc::EISDIR, "EISDIR"),
    (libc::EINVAL, "EINVAL"),
    (libc::ENFILE, "ENFILE"),
    (libc::EMFILE, "EMFILE"),
    (libc::ENOTTY, "ENOTTY"),
    (libc::ETXTBSY, "ETXTBSY"),
    (libc::EFBIG, "EFBIG"),
    (libc::ENOSPC, "ENOSPC"),
    (libc::ESPIPE, "ESPIPE"),
    (libc::EROFS, "EROFS"),
    (libc::EPIPE, "EPIPE"),
    (libc::ERANGE, "ERANGE"),
    (libc::EDEADLK, "EDEADLK"),
    (libc::ENAMETOOLONG, "ENAMETOOLONG"),
    (libc::ENOSYS, "ENOSYS"),
    (libc::ENOTEMPTY, "ENOTEMPTY"),
    (libc::ELOOP, "ELOOP"),
    (libc::ENODATA, "ENODATA"),
    (libc::ETIME, "ETIME"),
    (libc::EPROTO, "EPROTO"),
    (libc::EOVERFLOW, "EOVERFLOW"),
    (libc::EILSEQ, "EILSEQ"),
    (libc::ENOTSOCK, "ENOTSOCK"),
    (libc::EMSGSIZE, "EMSGSIZE"),
    (libc::EOPNOTSUPP, "EOPNOTSUPP"),
    (libc::EAFNOSUPPORT, "EAFNOSUPPORT"),
    (libc::EADDRINUSE, "EADDRINUSE"),
    (libc::EADDRNOTAVAIL, "EADDRNOTAVAIL"),
    (libc::ENETUNREACH, "ENETUNREACH"),
    (libc::ECONNABORTED, "ECONNABORTED"),
    (libc::ECONNRESET, "ECONNRESET"),
    (libc::ENOBUFS, "ENOBUFS"),
    (libc::ENOTCONN, "ENOTCONN"),
    (libc::ETIMEDOUT, "ETIMEDOUT"),
    (libc::ECONNREFUSED, "ECONNREFUSED"),
    (libc::EHOSTUNREACH, "EHOSTUNREACH"),
    (libc::EALREADY, "EALREADY"),
    (libc::EINPROGRESS, "EINPROGRESS"),
    (libc::ESTALE, "ESTALE"),
    (libc::EREMOTEIO, "EREMOTEIO"),
    (libc::EDQUOT, "EDQUOT"),
    (libc::ENOMEDIUM, "ENOMEDIUM"),
    (libc::ECANCELED, "ECANCELED"),
];

const BEFORE: &str = "(os error ";

/// Replaces the numbers that the standard library writes by names: `(ENOENT)` for `(os error 2)`. Numbers without a
/// name here stay.
#[must_use]
pub fn name_errnos(text: &str) -> String {
    let mut parts = text.split(BEFORE);
    let mut named = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let found = part.split_once(')').and_then(|(number, rest)| Some((name(number.parse().ok()?)?, rest)));
        match found {
            Some((name, rest)) => named.extend(["(", name, ")", rest]),
            None => named.extend([BEFORE, part]),
        }
    }
    named
}

fn name(errno: i32) -> Option<&'static str> {
    NAMES.iter().find(|(number, _)| *number == errno).map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn numbers_become_names_and_other_text_stays() {
        let error = io::Error::from_raw_os_error(libc::ENOSPC);
        assert_eq!(name_errnos(&error.to_string()), "No space left on device (ENOSPC)");
        let (one, other) = (io::Error::from_raw_os_error(libc::EACCES), io::Error::from_raw_os_error(4095));
        let text = format!("cannot open /x: {one}; and {other}");
        assert_eq!(
            name_errnos(&text),
            "cannot open /x: Permission denied (EACCES); and Unknown error 4095 (os error 4095)"
        );
        for same in ["", "no number", "(os error ", "(os error x) (os error 99999999999)", "(os error 2"] {
            assert_eq!(name_errnos(same), same);
        }
    }

    #[test]
    fn no_number_has_two_names() {
        let mut numbers: Vec<i32> = NAMES.iter().map(|(number, _)| *number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), NAMES.len());
    }
}
