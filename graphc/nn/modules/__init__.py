"""The layers of torch.nn, one file a family, each imported when one of its names is asked for."""

from typing import TYPE_CHECKING

from ...on_demand import on_demand

if TYPE_CHECKING:
    from .activation import (
        CELU,
        ELU,
        GELU,
        GLU,
        SELU,
        Hardshrink,
        Hardsigmoid,
        Hardswish,
        Hardtanh,
        LeakyReLU,
        LogSigmoid,
        LogSoftmax,
        Mish,
        PReLU,
        ReLU,
        ReLU6,
        Sigmoid,
        SiLU,
        Softmax,
        Softmax2d,
        Softmin,
        Softplus,
        Softshrink,
        Softsign,
        Tanh,
        Tanhshrink,
        Threshold,
    )
    from .adaptive import (
        AdaptiveLogSoftmaxWithLoss,
    )
    from .attention import (
        MultiheadAttention,
    )
    from .channelshuffle import (
        ChannelShuffle,
    )
    from .container import (
        ModuleDict,
        ModuleList,
        ParameterDict,
        ParameterList,
        Sequential,
    )
    from .conv import (
        Conv1d,
        Conv2d,
        Conv3d,
        ConvTranspose1d,
        ConvTranspose2d,
        ConvTranspose3d,
    )
    from .dropout import (
        AlphaDropout,
        Dropout,
        Dropout1d,
        Dropout2d,
        Dropout3d,
    )
    from .fold import (
        Fold,
    )
    from .lazy_linear import (
        LazyConv1d,
        LazyConv2d,
        LazyConv3d,
        LazyConvTranspose1d,
        LazyConvTranspose2d,
        LazyConvTranspose3d,
        LazyLinear,
    )
    from .lazy_norm import (
        LazyBatchNorm1d,
        LazyBatchNorm2d,
        LazyBatchNorm3d,
        LazyInstanceNorm1d,
        LazyInstanceNorm2d,
        LazyInstanceNorm3d,
    )
    from .linear import (
        Bilinear,
        Flatten,
        Identity,
        Linear,
        Unflatten,
    )
    from .linear_cross_entropy import LinearCrossEntropyLoss, LinearCrossEntropyOptions
    from .loss import (
        BCELoss,
        BCEWithLogitsLoss,
        CosineEmbeddingLoss,
        CrossEntropyLoss,
        CTCLoss,
        GaussianNLLLoss,
        HingeEmbeddingLoss,
        HuberLoss,
        KLDivLoss,
        L1Loss,
        MarginRankingLoss,
        MSELoss,
        MultiLabelMarginLoss,
        MultiLabelSoftMarginLoss,
        MultiMarginLoss,
        NLLLoss,
        NLLLoss2d,
        PoissonNLLLoss,
        SmoothL1Loss,
        SoftMarginLoss,
        TripletMarginLoss,
        TripletMarginWithDistanceLoss,
    )
    from .module import (
        Module,
    )
    from .normalization import (
        BatchNorm1d,
        BatchNorm2d,
        BatchNorm3d,
        GroupNorm,
        InstanceNorm1d,
        InstanceNorm2d,
        InstanceNorm3d,
        LayerNorm,
        LocalResponseNorm,
        RMSNorm,
        SyncBatchNorm,
    )
    from .padding import (
        CircularPad1d,
        CircularPad2d,
        CircularPad3d,
        ConstantPad1d,
        ConstantPad2d,
        ConstantPad3d,
        CosineSimilarity,
        PairwiseDistance,
        PixelShuffle,
        PixelUnshuffle,
        ReflectionPad1d,
        ReflectionPad2d,
        ReflectionPad3d,
        ReplicationPad1d,
        ReplicationPad2d,
        ReplicationPad3d,
        Unfold,
        Upsample,
        UpsamplingBilinear2d,
        UpsamplingNearest2d,
        ZeroPad1d,
        ZeroPad2d,
        ZeroPad3d,
    )
    from .pooling import (
        AdaptiveAvgPool1d,
        AdaptiveAvgPool2d,
        AdaptiveAvgPool3d,
        AdaptiveMaxPool1d,
        AdaptiveMaxPool2d,
        AdaptiveMaxPool3d,
        AvgPool1d,
        AvgPool2d,
        AvgPool3d,
        MaxPool1d,
        MaxPool2d,
        MaxPool3d,
    )
    from .rnn import (
        GRU,
        LSTM,
        RNN,
        GRUCell,
        LSTMCell,
        RNNBase,
        RNNCell,
        RNNCellBase,
    )
    from .sparse import (
        Embedding,
        EmbeddingBag,
    )
    from .transformer import (
        Transformer,
        TransformerDecoder,
        TransformerDecoderLayer,
        TransformerEncoder,
        TransformerEncoderLayer,
    )
    from .unpooling import (
        FractionalMaxPool2d,
        FractionalMaxPool3d,
        LPPool1d,
        LPPool2d,
        LPPool3d,
        MaxUnpool1d,
        MaxUnpool2d,
        MaxUnpool3d,
    )
    from .variants import (
        Container,
        CrossMapLRN2d,
        FeatureAlphaDropout,
        RReLU,
    )

_NAMES = {
    "activation": """
        CELU ELU GELU GLU SELU Hardshrink Hardsigmoid Hardswish Hardtanh LeakyReLU
        LogSigmoid LogSoftmax Mish PReLU ReLU ReLU6 Sigmoid SiLU Softmax Softmax2d Softmin
        Softplus Softshrink Softsign Tanh Tanhshrink Threshold
    """,
    "adaptive": "AdaptiveLogSoftmaxWithLoss",
    "attention": "MultiheadAttention",
    "channelshuffle": "ChannelShuffle",
    "container": "ModuleDict ModuleList ParameterDict ParameterList Sequential",
    "conv": "Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d",
    "dropout": "AlphaDropout Dropout Dropout1d Dropout2d Dropout3d",
    "fold": "Fold",
    "lazy_linear": """
        LazyConv1d LazyConv2d LazyConv3d LazyConvTranspose1d LazyConvTranspose2d
        LazyConvTranspose3d LazyLinear
    """,
    "lazy_norm": """
        LazyBatchNorm1d LazyBatchNorm2d LazyBatchNorm3d LazyInstanceNorm1d
        LazyInstanceNorm2d LazyInstanceNorm3d
    """,
    "linear": "Bilinear Flatten Identity Linear Unflatten",
    "linear_cross_entropy": "LinearCrossEntropyLoss LinearCrossEntropyOptions",
    "loss": """
        BCELoss BCEWithLogitsLoss CosineEmbeddingLoss CrossEntropyLoss CTCLoss
        GaussianNLLLoss HingeEmbeddingLoss HuberLoss KLDivLoss L1Loss MarginRankingLoss
        MSELoss MultiLabelMarginLoss MultiLabelSoftMarginLoss MultiMarginLoss NLLLoss
        NLLLoss2d PoissonNLLLoss SmoothL1Loss SoftMarginLoss TripletMarginLoss
        TripletMarginWithDistanceLoss
    """,
    "module": "Module",
    "normalization": """
        BatchNorm1d BatchNorm2d BatchNorm3d GroupNorm InstanceNorm1d InstanceNorm2d
        InstanceNorm3d LayerNorm LocalResponseNorm RMSNorm SyncBatchNorm
    """,
    "padding": """
        CircularPad1d CircularPad2d CircularPad3d ConstantPad1d ConstantPad2d ConstantPad3d
        CosineSimilarity PairwiseDistance PixelShuffle PixelUnshuffle ReflectionPad1d
        ReflectionPad2d ReflectionPad3d ReplicationPad1d ReplicationPad2d ReplicationPad3d
        Unfold Upsample UpsamplingBilinear2d UpsamplingNearest2d ZeroPad1d ZeroPad2d
        ZeroPad3d
    """,
    "pooling": """
        AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d AdaptiveMaxPool1d
        AdaptiveMaxPool2d AdaptiveMaxPool3d AvgPool1d AvgPool2d AvgPool3d MaxPool1d
        MaxPool2d MaxPool3d
    """,
    "rnn": "GRU LSTM RNN GRUCell LSTMCell RNNBase RNNCell RNNCellBase",
    "sparse": "Embedding EmbeddingBag",
    "transformer": """
        Transformer TransformerDecoder TransformerDecoderLayer TransformerEncoder
        TransformerEncoderLayer
    """,
    "unpooling": """
        FractionalMaxPool2d FractionalMaxPool3d LPPool1d LPPool2d LPPool3d MaxUnpool1d
        MaxUnpool2d MaxUnpool3d
    """,
    "variants": "Container CrossMapLRN2d FeatureAlphaDropout RReLU",
}
_OTHERS = """
    batchnorm constructors conversion distance flatten hooks instancenorm lazy module_notes
    pixelshuffle recurrence state traversal upsampling utils
""".split()

if not TYPE_CHECKING:
    __getattr__, __dir__, __all__ = on_demand(__name__, _NAMES, _OTHERS)
