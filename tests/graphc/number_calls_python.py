"""What Python does with a number or a size, a line each, for test_numbers.py.

n is a number, or the number of rows of x.
"""

PYTHON = """
    x.shape
    x.size()
    x.size(0)
    x.shape[0]
    x.shape[0]*2
    {"n":x.shape}
    list(x.shape)
    tuple(x.shape)
    (x.shape, x.shape[0]+n)
    x.numel()
    x.numel()*n
    len(x)
    x.stride()
    x.shape.numel()
    x.shape[:1]
    x.shape[1:]+(n,)
    [int(s) for s in x.shape]
    max(x.shape)
    min(x.shape[0], n)
    sum(x.shape)
    str(x.shape[0])
    str(x.shape)
    repr(x.shape)
    f"{x.shape[0]}-{n}"
    "%d %s"%(x.shape[0], n)
    f"{x.shape[0]:03d} {n:>5}"
    {5:"a", 7:"b"}.get(x.shape[0])
    {5:"a", 7:"b", 2:"c"}.get(n)
    {x.shape[0]: x.sum()}
    x.shape[0] in (5, 9)
    x.shape == (7, 3)
    tuple(x.shape) == (7, 3)
    x.shape[0] in {5, 9}
    n in {2, 5}
    set(x.shape)
    sorted(x.shape)
    range(x.shape[0])
    list(range(n))
    [x[i].sum() for i in range(n) if i < x.shape[0]]
    divmod(x.shape[0], 2)
    x.shape[0]**2
    x.shape[0]/2
    x.shape[0]//2
    -x.shape[0]//2
    x.shape[0]%4
    x.shape[0]<<1
    x.shape[0]&3
    x.shape[0]|8
    x.shape[0]^1
    ~x.shape[0]
    pow(x.shape[0], 2, 5)
    pow(n, 3, 7)
    round(n)
    round(n/2)
    round(n/3, 1)
    abs(-n)
    int(n/2)
    float(n)
    bool(n)
    n.bit_length()
    (n).to_bytes(2, "big")
    n.as_integer_ratio()
    n.real
    n.imag
    n.numerator
    n.denominator
    n.conjugate()
    complex(n)
    hash(n)
    isinstance(n, int)
    isinstance(n, float)
    isinstance(x.shape[0], int)
    (n/2).is_integer()
    (n/2).hex()
    math.sqrt(n)
    math.floor(n/2)
    math.ceil(n/2)
    math.trunc(n/2)
    math.log(n)
    math.prod(x.shape)
    math.gcd(n, 4)
    math.isqrt(n)
    math.factorial(n)
    math.comb(n, 2)
    math.ceil(x.shape[0]/2)
    math.isclose(n, 2)
    math.isnan(n)
    math.pi*n
    json.dumps({"k":n, "s":x.shape[0]})
    fractions.Fraction(n)
    fractions.Fraction(n, 3)
    decimal.Decimal(n)
    np.zeros(n).tolist()
    np.array([n, 1]).tolist()
    np.float64(n)
    np.sqrt(n)
    np.float32(2)*n
    n*np.float64(2)
    np.arange(n).tolist()
    operator.index(n)
    bin(n)
    hex(n)
    oct(n)
    chr(n+60)
    "a"*n
    [0]*n
    "abcdefghijklmnop"[n]
    list("abcdefghijklmnop")[n:]
    bytes(n)
    copy.deepcopy(n)
    str(n)
    repr(n/2)
    format(n, "x")
    "{:.2f}".format(n/3)
    "%05.1f"%(n/3)
    "%x"%n
    sum([n, n])
    max(n, 3)
    min(n, 3.5)
    any([n])
    not n
    n and 5
    n.__class__
    type(n) is int, type(n) is float
    pickle.loads(pickle.dumps(n))
    x.shape[0].__class__
    collections.Counter([n, n, 1])
    type(x.shape[0]) is int
"""
