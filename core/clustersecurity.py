"""Where a process of a cluster finds token and TLS files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .errors import OutboardError
from .rpc.grpc_credentials import TOKEN_VARIABLE, Security, Tls, make_token, read_token, write_token
from .rpc.pemfiles import check_files


def read_security(
    settings: Mapping[str, Any], token_path: Path, *, token: str | None = None, may_make: bool = False
) -> Security:
    """Return what calls carry and servers ask for.

    The token comes from the file that the settings name, else from ``OUTBOARD_TOKEN`` (``token``: what that was), else
    from ``token_path``, where ``may_make`` makes one.

    Raises:
        OutboardError: there is no token, others may read it, or a TLS file is not what it should be. Never its text.
    """
    given = os.environ.get(TOKEN_VARIABLE) if token is None else token
    try:
        if settings.get("token_file"):
            found = read_token(settings["token_file"])
        elif given:
            found = read_token(environ={TOKEN_VARIABLE: given})
        else:
            if may_make and not token_path.exists():
                write_token(token_path, make_token())
            found = read_token(token_path)
        cert, key, ca = (settings.get(name) for name in ("tls_cert", "tls_key", "tls_ca"))
        tls = Tls(cert, key, ca) if cert or key or ca else None
        check_files(cert, key, ca)
        return Security(found, tls, bool(settings.get("insecure")))
    except FileNotFoundError as error:
        if error.filename == str(token_path):
            text = f"no token: {token_path} is missing; name the cluster's token file with OUTBOARD_TOKEN_FILE"
            raise OutboardError(text) from None
        raise OutboardError(f"{error.filename}: no such file") from None
    except OSError as error:
        told = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        raise OutboardError(told) from None
    except ValueError as error:
        raise OutboardError(str(error)) from None
