"""torch.linalg: linear algebra on batches of matrices, with gradients.

LAPACK by way of NumPy; a compiled graph calls the same code.
"""

from graphc.frontend.autocast import all_listed
from graphc.frontend.tensors_only import tensors_only
from graphc.ir.op import LinAlgError

from .decompositions import (
    eig,
    eigh,
    eigvals,
    eigvalsh,
    householder_product,
    lstsq,
    matrix_rank,
    pinv,
    qr,
    svd,
    svdvals,
)
from .indefinite import ldl_factor, ldl_factor_ex, ldl_solve
from .norms import cond, matrix_norm, matrix_power, norm, vector_norm
from .products import cross, diagonal, matmul, multi_dot, vander, vecdot
from .solves import (
    cholesky,
    cholesky_ex,
    det,
    inv,
    inv_ex,
    lu,
    lu_factor,
    lu_factor_ex,
    lu_solve,
    matrix_exp,
    slogdet,
    solve,
    solve_ex,
    solve_triangular,
    tensorinv,
    tensorsolve,
)

__all__ = [
    "LinAlgError", "cholesky", "cholesky_ex", "cond", "cross", "det", "diagonal", "eig", "eigh",
    "eigvals", "eigvalsh", "householder_product", "inv", "inv_ex", "ldl_factor", "ldl_factor_ex",
    "ldl_solve", "lstsq", "lu", "lu_factor", "lu_factor_ex", "lu_solve", "matmul", "matrix_exp",
    "matrix_norm", "matrix_power", "matrix_rank", "multi_dot", "norm", "pinv", "qr", "slogdet",
    "solve", "solve_ex", "solve_triangular", "svd", "svdvals", "tensorinv", "tensorsolve",
    "vander", "vecdot", "vector_norm",
]

globals().update(tensors_only(all_listed(globals(), "linalg_"), __name__, "linalg_"))
